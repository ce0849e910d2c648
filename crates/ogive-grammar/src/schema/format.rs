//! Formats that llguidance reads too widely: to it every year has a 29th of February.

const DAY: &str = "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|\
                   02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|\
                   (?:[02468][048]|[13579][26])00)-02-29)";
const TIME: &str = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\\.[0-9]+)?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";

/// The pattern that a format is; `None` where llguidance's own will do, or it knows none.
pub(super) fn pattern_of(format: &str) -> Option<String> {
    match format {
        "date" => Some(format!("^{DAY}$")),
        "date-time" => Some(format!("^{DAY}[tT]{TIME}$")),
        _ => None,
    }
}
