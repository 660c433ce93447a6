//! What a URL names.

use redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisError};

#[cfg(feature = "redis-tls")]
use super::tls;
use super::{
    RedisBuilder, RedisConnection,
    link::Link,
    sentinel::Sentinels,
    source::{By, Server},
};
use crate::store::Error;

impl RedisBuilder {
    /// The way to it; nobody is asked anything yet.
    pub(super) fn connection(&self) -> Result<RedisConnection, Error> {
        let response_timeout = self.response_timeout;
        let behind = |scheme| Some((scheme, self.url.strip_prefix(scheme)?));
        let either = |plain, tls| behind(plain).or_else(|| behind(tls));
        let address = |client: &Client| client.get_connection_info().addr().to_string();
        if let Some((scheme, rest)) = either("redis-cluster://", "rediss-cluster://") {
            let (user, hosts) = credentials(rest);
            let scheme = scheme.replace("-cluster", "");
            if scheme == "rediss://" {
                // Once for all nodes: that there is cryptography, and that certificates are fit.
                self.server("rediss://localhost")?;
            }
            let mut seeds = Vec::new();
            for host in hosts.split(',') {
                let node = format!("{scheme}{user}{host}");
                let info = node.as_str().into_connection_info();
                let info = info.map_err(|error| wrong(&self.url, &error))?;
                let client = self.client(&node)?;
                match info.addr().clone() {
                    ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                        seeds.push(((host, port), client));
                    }
                    // No other is written like that.
                    _ => {}
                }
            }
            let address = addresses(seeds.iter().map(|(_, client)| address(client)));
            let link = Link::cluster(seeds, response_timeout);
            return Ok(RedisConnection { link, address });
        }
        let (by, address) =
            if let Some((scheme, rest)) = either("redis-sentinel://", "rediss-sentinel://") {
                let sentinels = self.sentinels(scheme, rest)?;
                let address = addresses(sentinels.sentinels.iter().map(address));
                (By::Sentinels(Box::new(sentinels)), address)
            } else {
                let client = self.server(&self.url)?;
                let address = addresses([address(&client)]);
                (By::Address(Box::new(client)), address)
            };
        let link = Link::one(Server {
            by,
            response_timeout,
        });
        Ok(RedisConnection { link, address })
    }

    /// The sentinels of a URL, and the master that they shall name.
    fn sentinels(&self, scheme: &str, rest: &str) -> Result<Sentinels, Error> {
        let scheme = scheme.replace("-sentinel", "");
        let (user, rest) = credentials(rest);
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, database) = path.split_once('/').unwrap_or((path, "0"));
        if name.is_empty() {
            return Err(Error::other(
                "the URL of the sentinels names no master: expected `redis-sentinel://host:26379,host:26380/name`; put the \
                 name by which they monitor it behind the hosts",
            ));
        }
        let of_sentinels = self.scheme_of_sentinels(&scheme);
        let sentinels = hosts.split(',').map(|host| {
            // An IPv6 address has colons of its own, in brackets.
            let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
            let port = if has_port { "" } else { ":26379" };
            let sentinel = self.client(&format!("{of_sentinels}{host}{port}"))?;
            let info = sentinel.get_connection_info().clone();
            let info = info.set_redis_settings(self.sentinel_login.clone());
            Client::open(info).map_err(|error| wrong(&self.url, &error))
        });
        Ok(Sentinels {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            name: name.to_owned(),
            // Which host it is will be told.
            master: self.server(&format!("{scheme}{user}localhost/{database}"))?,
        })
    }

    fn scheme_of_sentinels<'a>(&self, scheme: &'a str) -> &'a str {
        #[cfg(feature = "redis-tls")]
        if self.plain_sentinels {
            return "redis://";
        }
        scheme
    }

    /// The client of a server, which has all that it needs to connect.
    fn server(&self, url: &str) -> Result<Client, Error> {
        let client = self.client(url)?;
        #[cfg(feature = "redis-tls")]
        tls::check(&client)?;
        Ok(client)
    }

    /// The client of a server or of a sentinel.
    fn client(&self, url: &str) -> Result<Client, Error> {
        // Valkey's own scheme is known to the client as well.
        if url.starts_with("rediss") || url.starts_with("valkeys") {
            #[cfg(feature = "redis-tls")]
            return tls::client(url, &self.certificates);
            #[cfg(not(feature = "redis-tls"))]
            return Err(Error::other(WITHOUT_TLS));
        }
        Client::open(url).map_err(|error| wrong(url, &error))
    }
}

#[cfg(not(feature = "redis-tls"))]
const WITHOUT_TLS: &str = "the URL asks for TLS, which this program was built without: enable the feature `redis-tls` of \
                           tollgate, or connect by `redis://`";

/// What is wrong with a URL, and what to write.
pub(super) fn wrong(url: &str, error: &RedisError) -> Error {
    // What a password may stand before is not repeated.
    let shown = match (url.rsplit_once('@'), url.split_once("://")) {
        (None, _) => url.to_owned(),
        (Some((_, host)), Some((scheme, _))) => format!("{scheme}://…@{host}"),
        (Some((_, host)), None) => format!("…@{host}"),
    };
    let what = match url.split_once("://") {
        None => "has no scheme".to_owned(),
        Some(_) => format!("cannot be read ({error})"),
    };
    Error::other(format!(
        "the URL `{shown}` {what}: expected one like `redis://host:6379`, `redis-cluster://host:7000,host:7001` or \
         `redis-sentinel://host:26379/name`; `Redis::builder` lists all"
    ))
}

/// The address of several servers.
fn addresses(each: impl IntoIterator<Item = String>) -> Option<Box<str>> {
    let each: Vec<String> = each.into_iter().collect();
    (!each.is_empty()).then(|| each.join(",").into())
}

/// `user:password@` or nothing, and the hosts.
fn credentials(rest: &str) -> (&str, &str) {
    let at = rest.rfind('@').map_or(0, |at| at + 1);
    rest.split_at(at)
}

#[cfg(test)]
mod tests {
    use redis::Client;

    use super::Sentinels;
    use crate::{
        TokenBucket,
        store::{Error, Redis},
    };

    fn sentinels(rest: &str) -> Result<Sentinels, Error> {
        let builder = Redis::<TokenBucket>::builder("").sentinel_login("watcher", "t3ll:m@");
        builder.sentinels("redis-sentinel://", rest)
    }

    #[test]
    fn a_url_of_sentinels_tells_where_they_are_and_who_the_master_knows() {
        let found = sentinels("me:p%40ss@one,two:7000,[::1],[::2]:7001/shop/3").unwrap();
        let address = |client: &Client| client.get_connection_info().addr().to_string();
        let addresses: Vec<_> = found.sentinels.iter().map(address).collect();
        let expected = ["one:26379", "two:7000", "::1:26379", "::2:7001"];
        assert_eq!(addresses, expected);
        assert_eq!(found.name, "shop");
        let login = |client: &Client| {
            let settings = client.get_connection_info().redis_settings();
            let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
            (
                text(settings.username()),
                text(settings.password()),
                settings.db(),
            )
        };
        assert_eq!(login(&found.master), ("me".into(), "p@ss".into(), 3));
        for sentinel in &found.sentinels {
            assert_eq!(login(sentinel), ("watcher".into(), "t3ll:m@".into(), 0));
        }
    }

    #[test]
    fn an_address_is_told_without_what_the_url_keeps_secret() {
        for (url, address) in [
            ("redis://host", "host:6379"),
            ("redis://me:s3cr%40t@host:7000/3", "host:7000"),
            ("redis://me:s3cr?t@host:7000", ""),
            ("redis+unix:///run/redis?pass=s3cr@t&db=1", "/run/redis"),
            ("unix:///run/redis?pass=s3cr@t", "/run/redis"),
            (
                "redis-cluster://me:s3cr@t@one:7000,two",
                "one:7000,two:6379",
            ),
            (
                "redis-sentinel://me:s3cr@t@one,two:7000/shop/3",
                "one:26379,two:7000",
            ),
        ] {
            let connection = Redis::<TokenBucket>::builder(url).connection();
            let told = connection.ok().and_then(|connection| connection.address);
            assert_eq!(told.as_deref().unwrap_or_default(), address, "{url}");
        }
    }

    #[test]
    fn a_url_of_sentinels_that_is_none_is_an_error() {
        for wrong in [
            "one:26379",
            "one:26379/",
            "one/shop/first",
            "/shop",
            "one:port/shop",
            "",
        ] {
            assert!(sentinels(wrong).is_err(), "{wrong}");
        }
    }
}
