//! Opens bytes as a file and touches everything in it; what opens must also survive being written and read again.
//! Used by the mutation tests, by the replay of the seed corpus, and by the fuzzer.

use gguf_file::{Gguf, GgufWriter};

/// Whether the bytes open. Panics are for the caller to notice.
pub(crate) fn touch(bytes: &[u8]) -> bool {
    let file = match Gguf::from_bytes(bytes.to_vec()) {
        Ok(file) => file,
        Err(e) => {
            assert!(!e.to_string().is_empty());
            return false;
        }
    };
    let meta = file.metadata();
    for (key, value) in meta.iter() {
        assert!(!value.to_string().is_empty());
        let _ = (meta.opt_u32(key), meta.opt_f32(key), meta.opt_str(key), meta.opt_bool(key));
        let _ = (meta.opt_array_of_u32(key), meta.opt_array_of_f32(key));
        if let Ok(Some(strings)) = meta.opt_array_of_str(key) {
            assert_eq!(strings.iter_str().count(), strings.len());
        }
    }
    for t in file.tensors() {
        assert_eq!(file.tensor(t.name()), Some(t));
        if let Ok(data) = file.data(t) {
            assert_eq!(Some(data.bytes().len() as u64), t.byte_len());
        }
    }
    // A large alignment makes a large file of nothing but padding.
    if file.alignment() <= 4096 {
        let once = rewrite(&file);
        let again = Gguf::from_bytes(once.clone()).expect("what was written opens");
        assert_eq!(again.metadata().len(), meta.len());
        for t in again.tensors() {
            assert_eq!(again.data(t).expect("data").bytes(), file.data_of(t.name()).expect("data").bytes());
        }
        assert_eq!(rewrite(&again), once);
    }
    true
}

/// The file as this crate writes it, without the tensors whose data it cannot give.
fn rewrite(file: &Gguf) -> Vec<u8> {
    let mut writer = GgufWriter::with_metadata(file.metadata().clone());
    let tensors: Vec<_> = file.tensors().iter().filter_map(|t| Some((t, file.data(t).ok()?))).collect();
    for (t, _) in &tensors {
        writer
            .tensor(t.name(), t.dims(), t.known_type().expect("its data were given"))
            .expect("it was valid");
    }
    let mut out = Vec::new();
    let mut data = writer.write_to(&mut out).expect("it was valid");
    for (t, bytes) in tensors.iter().filter(|(t, _)| t.elements() > 0) {
        data.write_data(t.name(), bytes.bytes()).expect("the sizes agree");
    }
    data.finish().expect("all are written");
    out
}
