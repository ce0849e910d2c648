//! A driver that lacks functions: for programs that look them up with `dlsym`.
//!
//! `cuGetProcAddress` can be told to find nothing (`PTX_EMU_FAULT=missing-symbol:…`), the dynamic loader cannot: it reads the table in the file. So
//! the file is copied and the name in the copy's table changed; loading the copy under the name of the driver is up to the caller.

/// The bytes of a shared library in which the functions `names` cannot be found any more.
///
/// # Errors
/// A name that the library does not export.
///
/// ```no_run
/// let library = std::fs::read("target/debug/libptx_emulator.so")?;
/// let old = ptx_emulator::without_functions(&library, &["cuGraphLaunch"]).map_err(std::io::Error::other)?;
/// std::fs::create_dir_all("old-driver")?;
/// std::fs::write("old-driver/libcuda.so.1", old)?;
/// // LD_LIBRARY_PATH=old-driver program
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn without_functions(library: &[u8], names: &[&str]) -> Result<Vec<u8>, String> {
    let mut changed = library.to_vec();
    for name in names {
        let entry: Vec<u8> = [0].into_iter().chain(name.bytes()).chain([0]).collect();
        // Every table that has the name: the dynamic one and, before stripping, the static one.
        let places: Vec<usize> = memchr_all(&changed, &entry);
        if name.is_empty() || places.is_empty() {
            return Err(format!("taking `{name}` out of the library: it has no such name"));
        }
        for place in places {
            if let Some(first) = changed.get_mut(place + 1) {
                // The loader compares the hash first and then the name; the name does not match any more.
                *first = b'-';
            }
        }
    }
    Ok(changed)
}

fn memchr_all(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    bytes
        .windows(wanted.len())
        .enumerate()
        .filter(|(_, window)| *window == wanted)
        .map(|(at, _)| at)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::without_functions;

    #[test]
    fn a_name_is_taken_out_and_its_neighbours_stay() {
        let table = b"..\0cuInit\0cuGraphLaunch\0cuGraphLaunchEx\0";
        let changed = without_functions(table, &["cuGraphLaunch"]).expect("it is there");
        assert_eq!(changed, b"..\0cuInit\0-uGraphLaunch\0cuGraphLaunchEx\0");
        assert!(without_functions(table, &["cuGraph"]).is_err());
        assert!(without_functions(table, &[""]).is_err());
    }
}
