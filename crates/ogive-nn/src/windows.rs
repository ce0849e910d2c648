//! Cache layers of one window, which have a group of pages to themselves.
//!
//! By the windows that a model's layers have and not by a number that it gives: what is grouped otherwise would keep pages that nobody looks at.

use crate::backend::LayerCache;

/// Puts layers of one window into one group each, so that windowed layers give pages back while others keep theirs.
/// Groups are numbered in the order they are met.
pub fn group_by_window(layers: impl IntoIterator<Item = LayerCache>) -> Vec<LayerCache> {
    let mut windows: Vec<Option<usize>> = Vec::new();
    let place = |layer: LayerCache| {
        let LayerCache::Paged { window, .. } = layer else { return layer };
        let group = windows.iter().position(|w| *w == window).unwrap_or_else(|| {
            windows.push(window);
            windows.len() - 1
        });
        layer.in_group(group)
    };
    layers.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::group_windows;

    #[test]
    fn windows_have_groups_of_their_own() {
        let (w, f) = (LayerCache::windowed(4, 4, 16, 0), LayerCache::full(4, 4));
        assert_eq!(group_windows(&group_by_window([w, f, w, f])), [Some(16), None]);
        assert_eq!(group_windows(&group_by_window([f, f])), [None]);
    }
}
