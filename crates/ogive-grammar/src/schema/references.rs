//! What references lead to: a JSON pointer (RFC 6901) that stands as a fragment in a URI, and may be escaped as either.

use serde_json::Value;

/// What a reference leads to; `None` where it leads nowhere, or out of the schema that it is in.
pub(super) fn lead_to<'s>(root: &'s Value, text: &str) -> Option<&'s Value> {
    steps(text)?.iter().try_fold(root, |value, step| match value {
        Value::Array(list) => list.get(step.parse::<usize>().ok()?),
        value => value.get(step),
    })
}

/// Its steps from the whole schema on; `None` where it leads elsewhere.
pub(super) fn steps(text: &str) -> Option<Vec<String>> {
    let pointer = decoded(text.strip_prefix('#')?)?;
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    let steps = pointer.strip_prefix('/')?.split('/');
    Some(steps.map(|step| step.replace("~1", "/").replace("~0", "~")).collect())
}

/// Whether llguidance, which reads no escapes and takes `#/` for the whole schema, follows it to the same place.
pub(super) fn is_plain(text: &str) -> bool {
    !text.contains(['%', '~']) && text != "#/"
}

/// With `%20` and its like read; what is no such escape stays. `None` if that is no text.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        rest = match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                after.get(2..).unwrap_or_default()
            }
            _ => {
                bytes.push(first);
                after
            }
        };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read() {
        let root = serde_json::json!({"a/b": 1, "m~n": 2, "c d": [3, 4], "": 5, "é": 6, "100%": 7, "~1": 8});
        for (text, leads) in [
            ("#/a~1b", Some(1)),
            ("#/m~0n", Some(2)),
            ("#/c%20d/1", Some(4)),
            ("#/", Some(5)),
            ("#/%C3%A9", Some(6)),
            ("#/100%", Some(7)),
            ("#/100%25", Some(7)),
            ("#/~01", Some(8)),
            ("#/%ff", None),
            ("#a", None),
            ("/a~1b", None),
            ("#/c%20d/2", None),
        ] {
            assert_eq!(lead_to(&root, text).and_then(Value::as_u64), leads, "{text}");
        }
        assert_eq!(lead_to(&root, "#"), Some(&root));
    }
}
