//! Which layers have a window.

use super::*;

#[test]
fn windows_are_where_the_settings_have_them() {
    let of = |extra: &str, used: bool| {
        let text = format!(r#"{{"num_hidden_layers": 3, "sliding_window": 8{extra}}}"#);
        let windows = windows(&Config(serde_json::from_str(&text).unwrap()), used).unwrap();
        [0, 1, 2].map(|i| windows(i).is_some())
    };
    let types = r#", "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]"#;
    let off = r#", "use_sliding_window": false"#;
    assert_eq!((of("", true), of("", false)), ([true; 3], [false; 3]));
    assert_eq!(of(r#", "use_sliding_window": true, "max_window_layers": 2"#, false), [false, false, true]);
    assert_eq!(of(types, false), [true, false, true]);
    for used in [true, false] {
        assert_eq!(of(off, used), [false; 3]);
        assert_eq!(of(&format!("{types}{off}"), used), [false; 3]);
    }
}
