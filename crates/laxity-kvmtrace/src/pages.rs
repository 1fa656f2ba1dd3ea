//! The pages of the kernel's ring buffer.

/// The words of an event's header beside a length.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of the header that are its kind or length; the rest is the time since the event before.
const KIND_BITS: u32 = 5;
const DELTA_BITS: u32 = 27;

const HEAD_BYTES: usize = 16;
/// In the length of a page: how much of it is used, and that events before it were lost.
const USED: u64 = (1 << 20) - 1;
const MISSED: u64 = 1 << 31;

/// What is in a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// An event: its place in the page, its cycles, its bytes.
    Event(usize, u64, &'a [u8]),
    /// Events before this page were lost.
    Missed,
}

/// Calls `seen` with what is in a page, in order.
///
/// # Errors
///
/// The place in the page and what is wrong there, or what `seen` says.
pub fn read<E>(
    page: &[u8],
    damaged: impl Fn(usize, String) -> E,
    mut seen: impl FnMut(Found) -> Result<(), E>,
) -> Result<(), E> {
    let long = |at: usize| page.get(at..).and_then(|rest| rest.first_chunk()).copied();
    let (Some(time), Some(commit)) = (long(0), long(8)) else {
        return Err(damaged(0, "a page without a head".into()));
    };
    let (mut time, commit) = (u64::from_le_bytes(time), u64::from_le_bytes(commit));
    if commit & MISSED != 0 {
        seen(Found::Missed)?;
    }
    let used = (commit & USED) as usize;
    let Some(data) = page.get(..HEAD_BYTES + used) else {
        return Err(damaged(
            8,
            format!("{used} bytes in a page of {}", page.len()),
        ));
    };
    let mut at = HEAD_BYTES;
    while at < data.len() {
        let here = at;
        let mut word = || {
            let bytes = data.get(at..)?.first_chunk()?;
            at += 4;
            Some(u32::from_le_bytes(*bytes))
        };
        let cut = || damaged(here, "an event that is not whole".into());
        let head = word().ok_or_else(cut)?;
        let (kind, delta) = (head & ((1 << KIND_BITS) - 1), u64::from(head >> KIND_BITS));
        match kind {
            // Without a time, the rest of the page is empty.
            PADDING if delta == 0 => break,
            PADDING => {
                let bytes = word().ok_or_else(cut)? as usize;
                at = here + 4 + bytes.max(4);
            }
            TIME_EXTEND => {
                time = time.wrapping_add(delta | u64::from(word().ok_or_else(cut)?) << DELTA_BITS);
            }
            // Five bits more than it holds are those of the time before.
            TIME_STAMP => {
                let low = delta | u64::from(word().ok_or_else(cut)?) << DELTA_BITS;
                let high = time >> (32 + DELTA_BITS) << (32 + DELTA_BITS);
                time = high | low;
            }
            _ => {
                let bytes = match kind {
                    0 => (word().ok_or_else(cut)? as usize)
                        .checked_sub(4)
                        .ok_or_else(cut)?,
                    words => 4 * words as usize,
                };
                let end = at.checked_add(bytes).ok_or_else(cut)?;
                time = time.wrapping_add(delta);
                seen(Found::Event(here, time, data.get(at..end).ok_or_else(cut)?))?;
                at = end.next_multiple_of(4);
            }
        }
    }
    Ok(())
}
