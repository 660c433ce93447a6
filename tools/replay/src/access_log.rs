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
    /// `None` if the request is none.
    pub(crate) method: Option<&'a [u8]>,
    /// The target as it was sent. `None` if the request has no path.
    pub(crate) target: Option<&'a [u8]>,
    /// Without scheme, host and query. `None` if the request has no path.
    pub(crate) path: Option<&'a [u8]>,
    /// `None` for `-`.
    pub(crate) status: Option<u16>,
    /// As the server has escaped it. `None` for `-`, and in the Common Log Format.
    pub(crate) referer: Option<&'a [u8]>,
    /// As the server has escaped it. `None` for `-`, and in the Common Log Format.
    pub(crate) agent: Option<&'a [u8]>,
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
        let (status, rest) = status_and_size(rest)
            .ok_or("no status and size behind the request: expected both, as in `200 2326`")?;
        let (referer, agent) = referer_and_agent(rest).ok_or(
            "an ending of neither the Common nor the Combined Log Format: expected nothing behind the \
             size, or referer and user agent in quotes",
        )?;
        let given = |text: &'a [u8]| (text != b"-").then_some(text);
        let target = target(request);
        Ok(Self {
            at,
            host,
            user: given(user),
            method: target.map(|(method, _)| method),
            target: target.map(|(_, target)| target),
            path: target.and_then(|(_, target)| path(target)),
            status: std::str::from_utf8(status)
                .ok()
                .and_then(|status| status.parse().ok()),
            referer: referer.and_then(given),
            agent: agent.and_then(given),
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

/// Returns the status and the rest after the size, either of which may be `-`.
fn status_and_size(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let number = |text: &[u8]| text == b"-" || text.iter().all(u8::is_ascii_digit);
    let text = text.strip_prefix(b" ")?;
    let (status, rest) = word(text)?;
    let end = rest.iter().position(|byte| *byte == b' ');
    let (size, rest) = rest.split_at(end.unwrap_or(rest.len()));
    let is_status = status == b"-" || status.len() == 3;
    let is_right = is_status && number(status) && !size.is_empty() && number(size);
    is_right.then_some((status, rest))
}

type RefererAndAgent<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// Returns the referer and the user agent of a line that ends with this text; `None` if none does.
/// Some servers append words of their own.
fn referer_and_agent(text: &[u8]) -> Option<RefererAndAgent<'_>> {
    if text.is_empty() {
        return Some((None, None));
    }
    let (referer, rest) = quoted(text)?;
    let (agent, rest) = quoted(rest)?;
    (rest.is_empty() || rest[0] == b' ').then_some((Some(referer), Some(agent)))
}

/// Returns the method and the target of `GET /path?query HTTP/1.1`.
fn target(request: &[u8]) -> Option<(&[u8], &[u8])> {
    let (method, target) = word(request)?;
    let is_method = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
    if !method.iter().all(is_method) {
        return None;
    }
    // A target must not contain spaces, but servers also log the requests of clients that send
    // them.
    let version = target.windows(6).rposition(|window| window == b" HTTP/");
    let target = &target[..version.unwrap_or(target.len())];
    (!target.is_empty()).then_some((method, target))
}

/// Returns the path of a target, also of `http://host/path` as sent to proxies.
fn path(target: &[u8]) -> Option<&[u8]> {
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
