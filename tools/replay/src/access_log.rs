//! A line of an access log in the Common or the Combined Log Format.
//!
//! ```text
//! host ident user [10/Oct/2000:13:55:36 -0700] "GET /path?query HTTP/1.1" 200 2326
//! host ident user [10/Oct/2000:13:55:36 -0700] "GET /path?query HTTP/1.1" 200 2326 "referer" "user agent"
//! ```

use tollgate::Timestamp;

use crate::calendar::parse_log_time;

/// The fields of a line, unchanged.
pub(crate) struct Entry<'a> {
    pub(crate) at: Timestamp,
    pub(crate) host: &'a [u8],
    /// `None` for `-`.
    pub(crate) user: Option<&'a [u8]>,
    /// Without scheme, host and query. `None` if the request has no path.
    pub(crate) path: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    /// Parses a line without its line break, or returns a sentence that says what is wrong with it.
    pub(crate) fn parse(line: &'a [u8]) -> Result<Self, &'static str> {
        let (host, rest) = word(line).ok_or("no host: expected `host ident user [time] …`")?;
        let (_ident, rest) =
            word(rest).ok_or("no ident behind the host: expected `host ident user [time] …`")?;
        let (user, at, rest) = user_and_time(rest).ok_or(
            "no time behind host, ident and user: expected one from 1970 to 2262, as in \
             `[10/Oct/2000:13:55:36 -0700]`",
        )?;
        // A log that starts with the virtual host has one more field. No user name starts like
        // this.
        if user.starts_with(b"- ") {
            return Err("four words before the time: expected three, host, ident and user");
        }
        let (request, rest) = quoted(rest).ok_or(
            "no request behind the time: expected one in quotes, as in `\"GET / HTTP/1.1\"`",
        )?;
        let rest = status_and_size(rest)
            .ok_or("no status and size behind the request: expected both, as in `200 2326`")?;
        if !is_ending(rest) {
            return Err(
                "an ending of neither the Common nor the Combined Log Format: expected nothing behind the \
                 size, or referer and user agent in quotes",
            );
        }
        Ok(Self {
            at,
            host,
            user: (user != b"-").then_some(user),
            path: path(request),
        })
    }
}

/// Splits a text at the next space.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = text.iter().position(|byte| *byte == b' ')?;
    (space > 0).then(|| (&text[..space], &text[space + 1..]))
}

/// Splits the user from the time. The name of a user may contain spaces, so the first valid time
/// ends it.
fn user_and_time(text: &[u8]) -> Option<(&[u8], Timestamp, &[u8])> {
    const TIME: usize = "10/Oct/2000:13:55:36 -0700".len();
    let begins = text.windows(2).enumerate();
    let mut begins = begins.filter(|(begin, two)| *begin > 0 && *two == b" [");
    begins.find_map(|(begin, _)| {
        let (time, rest) = text[begin + 2..].split_at_checked(TIME)?;
        Some((
            &text[..begin],
            parse_log_time(time)?,
            rest.strip_prefix(b"]")?,
        ))
    })
}

/// Returns a text in quotes after a space, and the rest. A backslash escapes the next character,
/// which may be a quote.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b" \"")?;
    let mut escaped = false;
    let end = text.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })?;
    Some((&text[..end], &text[end + 1..]))
}

/// Returns the rest after status and size, either of which may be `-`.
fn status_and_size(text: &[u8]) -> Option<&[u8]> {
    let number = |text: &[u8]| text == b"-" || text.iter().all(u8::is_ascii_digit);
    let text = text.strip_prefix(b" ")?;
    let (status, rest) = word(text)?;
    let end = rest.iter().position(|byte| *byte == b' ');
    let (size, rest) = rest.split_at(end.unwrap_or(rest.len()));
    let is_status = status == b"-" || status.len() == 3;
    (is_status && number(status) && !size.is_empty() && number(size)).then_some(rest)
}

/// Returns `true` if a line may end with this text. Some servers append words of their own after
/// the user agent.
fn is_ending(text: &[u8]) -> bool {
    let agent = || {
        let (_referer, rest) = quoted(text)?;
        let (_agent, rest) = quoted(rest)?;
        Some(rest)
    };
    text.is_empty() || agent().is_some_and(|rest| rest.is_empty() || rest[0] == b' ')
}

/// Returns the path of `GET /path?query HTTP/1.1`, or of `GET http://host/path HTTP/1.1` as sent to
/// proxies.
fn path(request: &[u8]) -> Option<&[u8]> {
    let (method, target) = word(request)?;
    let is_method = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
    if !method.iter().all(is_method) {
        return None;
    }
    // A target must not contain spaces, but servers also log the requests of clients that send
    // them.
    let version = target.windows(6).rposition(|window| window == b" HTTP/");
    let target = &target[..version.unwrap_or(target.len())];
    let query = target.iter().position(|byte| matches!(byte, b'?' | b'#'));
    let target = &target[..query.unwrap_or(target.len())];
    let scheme = target.windows(3).position(|window| window == b"://");
    let path = match scheme {
        Some(scheme) if !target[..scheme].contains(&b'/') => {
            let host = &target[scheme + 3..];
            let path = host.iter().position(|byte| *byte == b'/');
            path.map_or(&b"/"[..], |path| &host[path..])
        }
        _ => target,
    };
    (!path.is_empty()).then_some(path)
}
