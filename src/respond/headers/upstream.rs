//! Merges the fields of a layer with those that a response already has.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    DRAFT06, Headers, RATELIMIT, RATELIMIT_POLICY, X_RATELIMIT,
    existing::{Existing, Lines, UpstreamLimit, seconds_from_now, texts, triple, unix_seconds_as},
    legacy::LegacyNumbers,
    value,
};

/// The treatment of rate limit fields that a response already has, for example from a proxied
/// upstream.
///
/// Clients cannot read two sets of numbers in one field. So the response has one valid set in the
/// format of the layer, with any upstream.
///
/// | | the response has |
/// |---|---|
/// | `Stricter` | the fields that leave fewer units: see below |
/// | `Keep` | the upstream's fields of any format, as they are; this layer's, if none of them can be read |
/// | `Replace` | this layer's fields alone |
///
/// `Stricter` is about the fields of this layer's own [format](crate::respond::Headers); fields
/// with other names stay as they are.
///
/// - In `Draft`, the members of all layers are joined in one List. Of limits with one name and
///   partition, that which leaves less is kept. A limit of draft-07 becomes a member named
///   `upstream`.
/// - In the other formats, there is room for one limit: the one with fewer remaining units, then
///   with the later reset. It is written in this layer's format, with the reset in Unix seconds or
///   as seconds from now as the format has it.
/// - An upstream may send a limit in parts. A policy alone leaves at most its quota, so `r` of this
///   layer's limit of that name is no more. Without `t`, the reset is the policy's window; a number
///   that is not sent at all is this layer's.
/// - Draft-06 has `RateLimit-Policy`, too: it stays beside the upstream's limit, and is removed
///   beside this layer's.
/// - Fields that cannot be read are removed.
///
/// An inner layer of this crate is an upstream, too. So with several layers, set `Keep` or
/// `Replace` on the innermost one. A response without fields of this layer keeps the upstream's:
/// with [`Headers::None`](crate::respond::Headers::None), and for exempt requests.
///
/// # Examples
///
/// ```
/// use tollgate::respond::{Http, UpstreamFields};
///
/// // A gateway, whose clients must not see the limits of the service behind it.
/// let respond = Http::new().upstream_fields(UpstreamFields::Replace);
/// # let _ = respond;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UpstreamFields {
    /// The stricter of both: the default.
    #[default]
    Stricter,
    /// The upstream's fields, if they can be read.
    Keep,
    /// This layer's fields.
    Replace,
}

/// Prepares the fields of a response for those of a layer; returns `true` if the layer must not add
/// its own.
#[inline]
pub(super) fn prepare(headers: &mut HeaderMap, upstream: UpstreamFields) -> bool {
    match upstream {
        UpstreamFields::Stricter => false,
        UpstreamFields::Replace => {
            remove_all(headers);
            false
        }
        UpstreamFields::Keep => keep_readable(headers),
    }
}

#[cold]
fn remove_all(headers: &mut HeaderMap) {
    let lists = [RATELIMIT, RATELIMIT_POLICY].into_iter();
    for name in lists.chain(DRAFT06).chain(X_RATELIMIT) {
        headers.remove(name);
    }
}

/// Removes the fields that cannot be read; returns `true` if any remain.
#[cold]
fn keep_readable(headers: &mut HeaderMap) -> bool {
    let lines = [RATELIMIT, RATELIMIT_POLICY].map(|name| Lines::of(headers, &name));
    let existing = Existing::of(&lines[0], &lines[1]);
    let has_triple = [DRAFT06, X_RATELIMIT].map(|names| {
        let is_readable = triple(headers, &names).is_some();
        if !is_readable {
            for name in names {
                headers.remove(name);
            }
        }
        is_readable
    });
    let mut ratelimit = texts(&existing.lists);
    let mut policies = texts(&existing.named_policies);
    match &existing.single {
        Some((line, _)) if ratelimit.is_empty() => ratelimit.push((*line).to_owned()),
        Some(_) => [ratelimit, policies] = existing.limits().lines().map(|line| vec![line]),
        None => {}
    }
    set_lines(headers, &RATELIMIT, &ratelimit);
    if policies.is_empty() {
        policies = texts(&existing.numbered_policies);
    }
    // Draft-06 has policies, too. Without remaining units, those of this layer are sent.
    let has_policies = !ratelimit.is_empty() || has_triple[0];
    let policies = if has_policies { policies } else { Vec::new() };
    set_lines(headers, &RATELIMIT_POLICY, &policies);
    !ratelimit.is_empty() || has_triple.contains(&true)
}

/// Replaces the lines of a field. Empty ones are left out.
fn set_lines(headers: &mut HeaderMap, name: &HeaderName, lines: &[String]) {
    headers.remove(name);
    // Never an error: they are parts of valid values.
    let lines = lines.iter().filter(|line| !line.is_empty());
    for value in lines.filter_map(|line| line.parse().ok()) {
        let _ = headers.try_append(name, value);
    }
}

/// Adds the lines of `RateLimit` and `RateLimit-Policy`; returns `true` if there were others.
#[inline]
fn append(headers: &mut HeaderMap, ratelimit: HeaderValue, policies: HeaderValue) -> bool {
    // A map that is full (32768 fields) is left as it is.
    let ratelimit = headers.try_append(RATELIMIT, ratelimit);
    let policies = headers.try_append(RATELIMIT_POLICY, policies);
    matches!(ratelimit, Ok(true)) || matches!(policies, Ok(true))
}

/// Adds `RateLimit` and `RateLimit-Policy` of the current draft.
#[inline]
pub(super) fn add_lists(headers: &mut HeaderMap, ratelimit: HeaderValue, policies: HeaderValue) {
    if append(headers, ratelimit, policies) {
        merge_lists(headers);
    }
}

/// Merges the last line of each field, which is ours, with the other ones.
#[cold]
fn merge_lists(headers: &mut HeaderMap) {
    let [ratelimit, our_ratelimit] = Lines::with_ours(headers, &RATELIMIT);
    let [policies, our_policies] = Lines::with_ours(headers, &RATELIMIT_POLICY);
    let mut theirs = Existing::of(&ratelimit, &policies).limits();
    let mut ours = Existing::of(&our_ratelimit, &our_policies).limits();
    for limit in &mut ours.all {
        if let Some(same) = theirs.get_mut(limit.id) {
            limit.merge(same);
        }
    }
    let ([ratelimit, policies], [our_ratelimit, our_policies]) = (theirs.lines(), ours.lines());
    set_lines(headers, &RATELIMIT, &[ratelimit, our_ratelimit]);
    set_lines(headers, &RATELIMIT_POLICY, &[policies, our_policies]);
}

/// Adds `RateLimit` and `RateLimit-Policy` of draft-07.
pub(super) fn add_single(headers: &mut HeaderMap, numbers: LegacyNumbers, policies: HeaderValue) {
    if let Some(ratelimit) = numbers.dictionary()
        && append(headers, ratelimit, policies)
    {
        merge_single(headers, numbers);
    }
}

#[cold]
fn merge_single(headers: &mut HeaderMap, ours: LegacyNumbers) {
    let [ratelimit, _] = Lines::with_ours(headers, &RATELIMIT);
    let [policies, our_policies] = Lines::with_ours(headers, &RATELIMIT_POLICY);
    let existing = Existing::of(&ratelimit, &policies);
    let nearest = existing
        .nearest()
        .filter(|theirs| theirs.nearness() <= ours.nearness());
    let nearest = nearest.map_or(ours, |theirs| theirs.completed_by(ours, seconds_from_now));
    if let Some(value) = nearest.dictionary() {
        let _ = headers.try_insert(RATELIMIT, value);
    }
    let mut lines = existing.as_numbered_policies();
    lines.extend(our_policies.each);
    set_lines(headers, &RATELIMIT_POLICY, &lines);
}

/// Returns the three fields of a format.
fn names_of(format: Headers) -> [HeaderName; 3] {
    match format {
        Headers::Draft06 => DRAFT06,
        _ => X_RATELIMIT,
    }
}

/// Adds the three fields of draft-06, or `X-RateLimit-*`.
pub(super) fn add_triple(headers: &mut HeaderMap, numbers: LegacyNumbers, format: Headers) {
    let names = names_of(format);
    // Draft-06 has `RateLimit-Policy`, too. Beside a `RateLimit` it is that of a later draft.
    let has_policies = format == Headers::Draft06
        && headers.contains_key(RATELIMIT_POLICY)
        && !headers.contains_key(RATELIMIT);
    let LegacyNumbers {
        limit,
        remaining,
        reset,
    } = match has_policies || headers.contains_key(&names[1]) {
        true => stricter_triple(headers, numbers, format, has_policies),
        false => numbers,
    };
    for (name, number) in names.into_iter().zip([limit, remaining, reset]) {
        if let Some(value) = value::number(number) {
            let _ = headers.try_insert(name, value);
        }
    }
}

#[cold]
fn stricter_triple(
    headers: &mut HeaderMap,
    ours: LegacyNumbers,
    format: Headers,
    has_policies: bool,
) -> LegacyNumbers {
    let is_nearer = |theirs: &UpstreamLimit| theirs.nearness() <= ours.nearness();
    let mut theirs = triple(headers, &names_of(format));
    if has_policies {
        let [ratelimit, policies] =
            [RATELIMIT, RATELIMIT_POLICY].map(|name| Lines::of(headers, &name));
        let existing = Existing::of(&ratelimit, &policies);
        theirs = theirs.or_else(|| existing.nearest()).filter(is_nearer);
        // The policies of a limit that is not sent would contradict ours.
        let policies = theirs.map_or_else(Vec::new, |_| existing.as_numbered_policies());
        set_lines(headers, &RATELIMIT_POLICY, &policies);
    }
    let theirs = theirs.filter(is_nearer);
    theirs.map_or(ours, |theirs| {
        theirs.completed_by(ours, |reset| match format {
            Headers::Legacy => unix_seconds_as(ours.reset, reset),
            _ => seconds_from_now(reset),
        })
    })
}
