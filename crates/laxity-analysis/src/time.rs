//! The type of times in the analysis.

/// Nanoseconds; wide enough that sums and products of valid times cannot overflow.
pub(crate) type Ns = i128;

/// The quotient, rounded up; `divisor` is positive.
#[inline]
pub(crate) fn ceiling_divide(dividend: Ns, divisor: Ns) -> Ns {
    // Nearly all numbers have 64 bits, which a CPU divides many times faster than 128.
    if let (Ok(dividend), Ok(divisor)) = (u64::try_from(dividend), u64::try_from(divisor)) {
        return dividend.div_ceil(divisor).into();
    }
    (dividend + divisor - 1).div_euclid(divisor)
}

/// The quotient, rounded towards zero; `divisor` is positive.
#[inline]
pub(crate) fn divide(dividend: Ns, divisor: Ns) -> Ns {
    if let (Ok(dividend), Ok(divisor)) = (u64::try_from(dividend), u64::try_from(divisor)) {
        return (dividend / divisor).into();
    }
    dividend / divisor
}
