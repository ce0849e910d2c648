//! What a tensor is on a device: memory of its own or lent, with what the operator that made it left beside it.

use crate::device::Device;
use crate::driver::Address;
use crate::error::{Error, Result};
use crate::graph::Loan;
use crate::memory::Buffer;
use crate::ops::codes::Codes;
use crate::ops::deferred::{Deferred, Part};
use crate::ops::matrix::Halves;
use ogive_tensor::{Shape, Tensor};
use std::sync::Arc;

/// What a tensor is here: single precision numbers, row-major.
#[derive(Debug)]
pub(crate) struct Values {
    place: Place,
    device: u64,
    /// The same rounded, where the operator that made them did that too.
    codes: Option<Codes>,
    halves: Option<Halves>,
    /// Of how many asked for these are the best of rows, if they are: places of all rows, then their values. `[n, 2 * k]`
    top_k: Option<usize>,
    /// Whether the host sent them, and no kernel wrote there since.
    sent: bool,
    /// The norm that makes them, and what of it they are, where it is left to who reads that.
    deferred: Option<(Arc<Deferred>, Part)>,
}

/// Whose the memory of values is.
#[derive(Debug)]
enum Place {
    /// A norm that is left to others holds it too.
    Own(Arc<Buffer>),
    /// A recorded step's, until the next one is launched.
    Lent(Arc<Loan>),
}

/// What chosen experts are: 32-bit numbers, all below `below`.
#[derive(Debug)]
pub(crate) struct Indices {
    buffer: Buffer,
    device: u64,
    below: usize,
}

impl Values {
    /// Other numbers will lie there.
    fn overwritten(&mut self) {
        self.codes = None;
        self.halves = None;
        self.sent = false;
        self.deferred = None;
    }

    /// Whether no one else holds the memory; what another holds is to be read yet.
    fn is_free(&mut self) -> bool {
        match &mut self.place {
            Place::Own(buffer) => Arc::get_mut(buffer).is_some(),
            Place::Lent(_) => true,
        }
    }
}

impl Device {
    /// A tensor not yet written.
    pub(crate) fn tensor(&self, at: &str, shape: impl Into<Shape>) -> ogive_tensor::Result<Tensor> {
        let shape = shape.into();
        let buffer = self.take(at, bytes(at, shape)?)?;
        Ok(self.tensor_in(Place::Own(Arc::new(buffer)), shape, None))
    }

    fn tensor_in(&self, place: Place, shape: Shape, top_k: Option<usize>) -> Tensor {
        let (codes, halves, deferred) = (None, None, None);
        Tensor::new(shape, Values { place, device: self.id(), codes, halves, top_k, sent: false, deferred })
    }

    /// What is in `buffer`: values, or what was found of them if the best were asked for.
    pub(crate) fn held(&self, buffer: Buffer, shape: Shape, top_k: Option<usize>) -> Tensor {
        self.tensor_in(Place::Own(Arc::new(buffer)), shape, top_k)
    }

    /// The same, with codes not yet written either.
    pub(crate) fn rounded(&self, at: &str, shape: Shape, codes: Codes) -> ogive_tensor::Result<Tensor> {
        let mut y = self.tensor(at, shape)?;
        if let Some(values) = y.data_mut::<Values>() {
            values.codes = Some(codes);
        }
        Ok(y)
    }

    /// `x`, if no one else holds it, as what the host sends there now.
    pub(crate) fn as_sent(mut x: Tensor) -> Tensor {
        if let Some(values) = x.data_mut::<Values>() {
            values.sent = true;
        }
        x
    }

    /// Whether the values of `x` are as the host sent them: a kernel may read them before those before it are done, for which copies wait, and
    /// which wait for copies.
    pub(crate) fn is_as_sent(x: &Tensor) -> bool {
        x.data::<Values>().is_ok_and(|values| values.sent)
    }

    /// The codes of `x`, where they were made with it.
    pub(crate) fn codes(x: &Tensor) -> Option<&Codes> {
        x.data::<Values>().ok().and_then(|values| values.codes.as_ref())
    }

    /// `x` with `halves` of the same values, if no one else holds it.
    pub(crate) fn with_halves(mut x: Tensor, halves: Halves) -> Tensor {
        if let Some(values) = x.data_mut::<Values>() {
            values.halves = Some(halves);
        }
        x
    }

    /// The halves of `x`, where they were made with it.
    pub(crate) fn halves(x: &Tensor) -> Option<&Halves> {
        x.data::<Values>().ok().and_then(|values| values.halves.as_ref())
    }

    /// The same memory and codes as of `x`, for a norm that is left to others to hold.
    pub(crate) fn alias(&self, at: &str, x: &Tensor) -> ogive_tensor::Result<Tensor> {
        let values = x.data::<Values>().map_err(|e| e.within(at))?;
        let place = match &values.place {
            Place::Own(buffer) => Place::Own(Arc::clone(buffer)),
            Place::Lent(loan) => Place::Lent(Arc::clone(loan)),
        };
        let mut alias = self.tensor_in(place, x.shape(), None);
        if let Some(own) = alias.data_mut::<Values>() {
            own.codes.clone_from(&values.codes);
        }
        Ok(alias)
    }

    /// `x`, if no one else holds it, as that part of what a norm makes.
    pub(crate) fn left_to(mut x: Tensor, deferred: &Arc<Deferred>, part: Part) -> Tensor {
        if let Some(values) = x.data_mut::<Values>() {
            values.deferred = Some((Arc::clone(deferred), part));
        }
        x
    }

    /// The norm whose result `x` is, where that is left to who reads it.
    pub(crate) fn deferred(x: &Tensor) -> Option<&Arc<Deferred>> {
        let (norm, part) = x.data::<Values>().ok()?.deferred.as_ref()?;
        (*part == Part::Result).then_some(norm)
    }

    /// Computes the norm that makes `x`, if it was left to who reads it and no one has.
    pub(crate) fn compute_deferred(&self, x: &Tensor) -> ogive_tensor::Result<()> {
        match x.data::<Values>().ok().and_then(|values| values.deferred.as_ref()) {
            Some((norm, part)) => norm.settle(self, *part),
            None => Ok(()),
        }
    }

    /// An error unless `x` is of this device. Unlike [`read`](Self::read) it computes nothing.
    pub(crate) fn check(&self, at: &str, x: &Tensor) -> ogive_tensor::Result<()> {
        self.own(at, x.data::<Values>().map_err(|e| e.within(at))?.device)
    }

    /// A tensor in the memory of a recorded step.
    pub(crate) fn lent(&self, loan: &Arc<Loan>, shape: Shape, top_k: Option<usize>) -> Tensor {
        self.tensor_in(Place::Lent(Arc::clone(loan)), shape, top_k)
    }

    /// Where the values of `x` lie, if they are of this device. A norm that makes them and was left to others is computed now.
    pub(crate) fn read(&self, at: &str, x: &Tensor) -> ogive_tensor::Result<Address> {
        match self.read_top_k(at, x)? {
            (address, None) => Ok(address),
            (_, Some(k)) => {
                let why = format!("only the best {k} of each row were kept; `best` takes them, or keep all");
                Err(ogive_tensor::Error::invalid(at, why))
            }
        }
    }

    /// Where `x` lies, and of how many asked for it is the best of rows, if it is.
    pub(crate) fn read_top_k(&self, at: &str, x: &Tensor) -> ogive_tensor::Result<(Address, Option<usize>)> {
        let values = x.data::<Values>().map_err(|e| e.within(at))?;
        self.own(at, values.device)?;
        self.compute_deferred(x)?;
        let address = match &values.place {
            Place::Own(buffer) => buffer.address(),
            // The next launch may overwrite it, this record's included.
            Place::Lent(loan) => {
                self.outside("reading the result of an earlier step")?;
                loan.address
            }
        };
        Ok((address, values.top_k))
    }

    /// Where the result of a recorded step lies, its shape, and of how many asked for it is the best of rows: if it is the step's own and no
    /// one else's.
    pub(crate) fn recorded(&self, mut y: Tensor) -> Option<(Address, Shape, Option<usize>)> {
        let shape = y.shape();
        match y.data_mut::<Values>() {
            Some(Values { place: Place::Own(buffer), device, top_k, .. }) if *device == self.id() => {
                let own = Arc::get_mut(buffer)?;
                own.is_of_arena().then(|| (own.address(), shape, *top_k))
            }
            _ => None,
        }
    }

    /// Whether no one else holds the values of `x`, so that they may be overwritten. Who asks will, so codes are given back.
    pub(crate) fn is_free(x: &mut Tensor) -> bool {
        x.data_mut::<Values>().is_some_and(|values| {
            let free = values.is_free();
            if free {
                values.overwritten();
            }
            free
        })
    }

    /// `x` to be written anew, if its memory is its own and no one else holds it.
    pub(crate) fn reused(&self, mut x: Tensor) -> Option<Tensor> {
        let values = x.data_mut::<Values>()?;
        if !values.is_free() {
            return None;
        }
        values.overwritten();
        (values.device == self.id() && matches!(values.place, Place::Own(_))).then_some(x)
    }

    /// `x` if no one else holds it, a copy otherwise.
    pub(crate) fn owned(&self, at: &str, mut x: Tensor) -> ogive_tensor::Result<Tensor> {
        let from = self.read(at, &x)?;
        if Self::is_free(&mut x) {
            return Ok(x);
        }
        let copy = self.tensor(at, x.shape())?;
        let len = bytes(at, x.shape())?;
        if len > 0 {
            self.stream().copy_within(self.read(at, &copy)?, from, len)?;
        }
        Ok(copy)
    }

    /// Numbers not yet written, which will all be below `below`.
    pub(crate) fn indices(
        &self,
        at: &str,
        shape: impl Into<Shape>,
        below: usize,
    ) -> ogive_tensor::Result<Tensor> {
        let shape = shape.into();
        let buffer = self.take(at, bytes(at, shape)?)?;
        Ok(Tensor::new(shape, Indices { buffer, device: self.id(), below }))
    }

    /// Where the numbers of `x` lie, and what they are below.
    pub(crate) fn read_indices(&self, at: &str, x: &Tensor) -> ogive_tensor::Result<(Address, usize)> {
        let indices = x.data::<Indices>().map_err(|e| e.within(at))?;
        self.own(at, indices.device)?;
        Ok((indices.buffer.address(), indices.below))
    }
}

/// Bytes of a tensor in single precision.
pub(crate) fn bytes(at: &str, shape: Shape) -> ogive_tensor::Result<usize> {
    let fold = shape.dims().iter().try_fold(4usize, |n, d| n.checked_mul(*d));
    // No allocation of Rust's own could be larger either.
    fold.filter(|&n| isize::try_from(n).is_ok()).ok_or_else(|| {
        ogive_tensor::Error::invalid(at, format!("{shape:?} is more elements than can be counted"))
    })
}

/// A size as kernels count, which is in 31 bits.
pub(crate) fn count(doing: &str, what: &'static str, size: usize) -> Result<i32> {
    let limit = i32::MAX as u64;
    i32::try_from(size).map_err(|_| Error::Limit { doing: doing.into(), what, size: size as u64, limit })
}
