//! What of an answer is open, for who holds calls to schemas: where arguments begin, and what would end a call without any.
//!
//! Whether a call would be whole is asked by ending it, in a copy: so there is no second opinion of it.

use super::{CallEvent, CallStream, Place};
use crate::tools::OpenCall;

impl CallStream {
    /// The call that has begun, if it is of a tool that there is and its arguments are JSON, up to their end.
    #[must_use]
    pub fn open(&self) -> Option<OpenCall<'_>> {
        let Place::Calls(here) = &self.place else { return None };
        let open = here.begun.open().filter(|open| self.is_known(open.name))?;
        Some(OpenCall { at: here.next + open.at, ..open })
    }

    /// How many bytes have been [pushed](Self::push) that stand at a byte of the [text](Self::text) or behind it: with those that wait
    /// or were taken out, and without special tokens.
    #[must_use]
    pub fn pushed_since(&self, at: usize) -> usize {
        let special: usize = self.special.iter().map(|&(start, end)| end.saturating_sub(start.max(at))).sum();
        let lead = self.fixed.syntax.lead.as_ref().map_or(0, |lead| lead.text.len());
        let taken = lead * self.taken.iter().filter(|taken| **taken > at).count();
        (self.text.len().saturating_sub(at) + taken + self.held.len()).saturating_sub(special)
    }

    /// Whether a call has begun that is an object, and has no arguments yet.
    #[must_use]
    pub fn may_leave_out(&self) -> bool {
        matches!(&self.place, Place::Calls(here) if here.begun.may_leave_out())
    }

    /// Whether this text would end a call that has no arguments, or empty ones, and that `needs` some by its name.
    #[must_use]
    pub fn leaves_out(&self, more: &str, needs: impl Fn(&str) -> bool) -> bool {
        let Place::Calls(here) = &self.place else { return false };
        here.begun.closes(more) && {
            let events = self.clone().push(more);
            let needy = |event: &CallEvent| match event {
                CallEvent::Ends { call, .. } => call.arguments.is_empty() && needs(&call.name),
                _ => false,
            };
            events.iter().any(needy)
        }
    }
}
