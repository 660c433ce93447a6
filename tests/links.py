#!/usr/bin/env python3
"""Follows all links between pages, with their anchors.

    tests/links.py FOLDER...            the pages below each folder: Markdown and HTML
    tests/links.py --hosts FOLDER...    links to other hosts instead, also those in Rust comments

Tests do not follow links to other hosts: they have traffic on the loopback interface only. Names of
items in pages of rustdoc, such as `crate::Limit`, are followed by rustdoc, and then here in HTML.
"""

import re
import sys
from functools import cache
from html import unescape
from pathlib import Path
from time import sleep
from urllib.error import HTTPError
from urllib.parse import unquote
from urllib.request import Request, urlopen

# In the documentation of a trait of `tracing`, which rustdoc shows on our pages.
FOREIGN = "dispatcher#setting-the-default-subscriber"

# Of other projects, copied to be tested, or made by a build.
ELSEWHERE = {"former", "node_modules", "target", ".git"}

# A link of Markdown to another host, also in a comment of Rust.
OUTSIDE = r"(?:\]\(|^ *(?://[/!] )?\[[^\]]+\]: )(https?://[^\s)]+)"


@cache
def anchors(page):
    text = page.read_text()
    if page.suffix == ".html":
        ids = re.findall(r"""\bid=["']?([^"'\s>]+)""", text)
        return {unquote(unescape(anchor)) for anchor in ids}
    headings = re.findall(r"^#{1,6} (.+)$", without_code(text), re.MULTILINE)
    names = [re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    # The second heading of a name has a number.
    return {f"{name}-{names[:at].count(name)}".removesuffix("-0") for at, name in enumerate(names)}


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def links(page):
    text = page.read_text()
    if page.suffix == ".html":
        return (unescape(link) for link in re.findall(r"""\bhref=["']([^"']+)""", text))
    text = re.sub(r"`[^`\n]*`", "`", without_code(text))
    found = re.findall(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", text, re.MULTILINE)
    return (inline or reference for inline, reference in found)


def mistakes(page):
    for link in links(page):
        # Of other hosts, items of rustdoc, and a template in its scripts.
        if re.match(r"[a-z]+:|crate#", link) or "::" in link or "${" in link or link == FOREIGN:
            continue
        path, _, anchor = unquote(link).partition("#")
        target = page.parent / path if path else page
        if target.is_dir():
            target /= "index.html" if page.suffix == ".html" else ""
        if not target.exists():
            yield f"{page}: {link}: there is no {target}"
        elif anchor and "/src/" not in str(target) and target.suffix in (".html", ".md"):
            if anchor not in anchors(target.resolve()):
                yield f"{page}: {link}: expected one of the anchors of {target}"


def below(folders, *kinds):
    return [
        page
        for folder in folders
        for kind in kinds
        for page in Path(folder).rglob(kind)
        if not ELSEWHERE & set(page.relative_to(folder).parts)
    ]


def answer(url):
    """Returns what is wrong with the answer to a URL; `None` if it leads to a page."""
    # Some hosts have pages only for browsers with a name.
    headers = {"user-agent": "tollgate/tests/links.py", "accept": "text/html, */*"}
    request = Request(url, headers=headers)
    for pause in (0, 2, 10):
        sleep(pause)
        try:
            with urlopen(request, timeout=20):
                return None
        except HTTPError as error:
            wrong = f"answered with {error.code}"
            if error.code in (404, 410):
                break
        except (OSError, ValueError) as error:
            wrong = f"not answered: {error}"
    return f"{url}: {wrong}"


def hosts(folders):
    pages = below(folders, "*.md", "*.rs")
    urls = sorted({url for page in pages for url in re.findall(OUTSIDE, page.read_text(), re.M)})
    return urls, [wrong for url in urls if (wrong := answer(url))], pages


def local(folders):
    pages = below(folders, "*.md", "*.html")
    followed = [link for page in pages for link in links(page)]
    return followed, sorted({wrong for page in pages for wrong in mistakes(page.resolve())}), pages


def main(arguments):
    follow = hosts if "--hosts" in arguments else local
    followed, wrong, pages = follow([folder for folder in arguments if folder != "--hosts"])
    print(*wrong, f"links: {len(followed)} on {len(pages)} pages, {len(wrong)} wrong", sep="\n")
    # A page without links would mean that none was recognized.
    return 1 if wrong or not followed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
