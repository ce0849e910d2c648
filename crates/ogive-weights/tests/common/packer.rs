//! Packed checkpoints, made number by number as their packers' files are described, and what they mean.

#![allow(dead_code, reason = "each test binary uses a part")]

use ogive_weights::tensor::{Format, serde_json::json};

/// A matrix of codes with a scale and a zero point for each row and group.
pub(crate) struct Numbers {
    pub(crate) bits: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// `[rows][cols]`
    pub(crate) codes: Vec<Vec<u32>>,
    /// `[groups][rows]`
    pub(crate) zeros: Vec<Vec<u32>>,
    /// `[groups][rows]`
    pub(crate) scales: Vec<Vec<f32>>,
    /// The group of each column.
    pub(crate) groups: Vec<u32>,
}

impl Numbers {
    /// Numbers from all over, in groups of `size`. `zero`: what all zero points are, or anything from the codes' range.
    pub(crate) fn new(bits: usize, [rows, cols]: [usize; 2], size: usize, zero: Option<u32>) -> Self {
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = |below: u32| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u32 % below
        };
        let count = cols.div_ceil(size);
        Self {
            bits,
            rows,
            cols,
            codes: (0..rows).map(|_| (0..cols).map(|_| next(1 << bits)).collect()).collect(),
            zeros: (0..count)
                .map(|_| (0..rows).map(|_| zero.unwrap_or_else(|| next(1 << bits))).collect())
                .collect(),
            scales: (0..count)
                .map(|_| (0..rows).map(|_| (1 + next(2047)) as f32 / 8192.0).collect())
                .collect(),
            groups: (0..cols).map(|c| (c / size) as u32).collect(),
        }
    }

    /// Every element: the definition. `[rows, cols]`
    pub(crate) fn values(&self) -> Vec<f32> {
        let value = |(row, col): (usize, usize)| {
            let group = self.groups[col] as usize;
            let (code, zero) = (self.codes[row][col] as f32, self.zeros[group][row] as f32);
            self.scales[group][row] * (code - zero)
        };
        (0..self.rows).flat_map(|r| (0..self.cols).map(move |c| (r, c))).map(value).collect()
    }

    fn count(&self) -> usize {
        self.scales.len()
    }

    fn scales_as(&self, format: &Format) -> Vec<u8> {
        let mut bytes = vec![0; self.count() * self.rows * format.block_bytes];
        format.encode_row(&self.scales.concat(), &mut bytes).unwrap();
        bytes
    }

    /// AutoGPTQ's tensors below `stem`; `less` is what zero points are less than they should be, 0 or 1.
    pub(crate) fn gptq(&self, stem: &str, less: u32, scales: &Format) -> Vec<Tensor> {
        let lines = self.cols * self.bits / 32;
        let streams: Vec<Vec<u32>> = self.codes.iter().map(|row| stream(row, self.bits)).collect();
        let words: Vec<u32> = (0..lines).flat_map(|i| streams.iter().map(move |s| s[i])).collect();
        let zeros: Vec<u32> = self.zeros.iter().flat_map(|z| lowered(z, self.bits, less)).collect();
        vec![
            tensor(stem, "qweight", "I32", &[lines, self.rows], bytes(&words)),
            tensor(stem, "qzeros", "I32", &[self.count(), self.rows * self.bits / 32], bytes(&zeros)),
            tensor(
                stem,
                "scales",
                &scales.name.to_uppercase(),
                &[self.count(), self.rows],
                self.scales_as(scales),
            ),
            tensor(stem, "g_idx", "I32", &[self.cols], bytes(&self.groups)),
        ]
    }

    /// AutoAWQ's.
    pub(crate) fn awq(&self, stem: &str, scales: &Format) -> Vec<Tensor> {
        let pack = |numbers: Vec<u32>| -> Vec<u32> {
            let word = |eight: &[u32]| {
                [0, 2, 4, 6, 1, 3, 5, 7].iter().enumerate().map(|(i, n)| eight[*n] << (4 * i)).sum()
            };
            numbers.chunks(8).map(word).collect()
        };
        let words: Vec<u32> =
            (0..self.cols).flat_map(|c| pack(self.codes.iter().map(|row| row[c]).collect())).collect();
        let zeros: Vec<u32> = self.zeros.iter().flat_map(|z| pack(z.clone())).collect();
        vec![
            tensor(stem, "qweight", "I32", &[self.cols, self.rows / 8], bytes(&words)),
            tensor(stem, "qzeros", "I32", &[self.count(), self.rows / 8], bytes(&zeros)),
            tensor(
                stem,
                "scales",
                &scales.name.to_uppercase(),
                &[self.count(), self.rows],
                self.scales_as(scales),
            ),
        ]
    }

    /// Those of compressed-tensors; with zero points if `zeros`, with groups column by column if `listed`.
    pub(crate) fn compressed(&self, stem: &str, zeros: bool, listed: bool, scales: &Format) -> Vec<Tensor> {
        let words: Vec<u32> = self.codes.iter().flat_map(|row| stream(row, self.bits)).collect();
        let turned: Vec<f32> = (0..self.rows).flat_map(|r| self.scales.iter().map(move |s| s[r])).collect();
        let mut factors = vec![0; turned.len() * scales.block_bytes];
        scales.encode_row(&turned, &mut factors).unwrap();
        let shape = [self.rows as i64, self.cols as i64];
        let mut all = vec![
            tensor(stem, "weight_packed", "I32", &[self.rows, self.cols * self.bits / 32], bytes(&words)),
            tensor(stem, "weight_scale", &scales.name.to_uppercase(), &[self.rows, self.count()], factors),
            tensor(stem, "weight_shape", "I64", &[2], shape.iter().flat_map(|n| n.to_le_bytes()).collect()),
        ];
        if zeros {
            let padded = |z: &Vec<u32>| {
                let mut z = z.clone();
                z.resize(z.len().next_multiple_of(32 / self.bits), 0);
                stream(&z, self.bits)
            };
            let streams: Vec<Vec<u32>> = self.zeros.iter().map(padded).collect();
            let lines = streams[0].len();
            let words: Vec<u32> = (0..lines).flat_map(|i| streams.iter().map(move |s| s[i])).collect();
            all.push(tensor(stem, "weight_zero_point", "I32", &[lines, self.count()], bytes(&words)));
        }
        if listed {
            all.push(tensor(stem, "weight_g_idx", "I32", &[self.cols], bytes(&self.groups)));
        }
        all
    }
}

/// A tensor of a file.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn tensor(stem: &str, leaf: &str, dtype: &str, shape: &[usize], bytes: Vec<u8>) -> Tensor {
    Tensor { name: format!("{stem}{leaf}"), dtype: dtype.into(), shape: shape.into(), bytes }
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Numbers of `bits` bits one after the other, bit by bit.
fn stream(numbers: &[u32], bits: usize) -> Vec<u32> {
    let mut words = vec![0; (numbers.len() * bits).div_ceil(32)];
    for (i, number) in numbers.iter().enumerate() {
        for bit in 0..bits {
            let at = i * bits + bit;
            words[at / 32] |= (number >> bit & 1) << (at % 32);
        }
    }
    words
}

/// Zero points as GPTQModel writes them: it subtracts from whole words, where a 0 borrows from its neighbour. Numbers of 3 bits lie
/// across words and are lowered one by one.
fn lowered(zeros: &[u32], bits: usize, less: u32) -> Vec<u32> {
    let each = match bits {
        2 => 0x5555_5555,
        4 => 0x1111_1111,
        8 => 0x0101_0101,
        _ => return stream(&zeros.iter().map(|z| z.wrapping_sub(less) & 7).collect::<Vec<_>>(), bits),
    };
    stream(zeros, bits).into_iter().map(|word| word.wrapping_sub(less * each)).collect()
}

/// The safetensors file of these tensors.
pub(crate) fn file(tensors: &[Tensor]) -> Vec<u8> {
    let (mut header, mut data) = (json!({}), Vec::new());
    for t in tensors {
        let begin = data.len();
        data.extend_from_slice(&t.bytes);
        header[&t.name] = json!({"dtype": t.dtype, "shape": t.shape, "data_offsets": [begin, data.len()]});
    }
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}
