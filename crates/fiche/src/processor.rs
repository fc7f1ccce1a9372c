//! Loops that spend their time in counting bits and taking some of them, for which most processors have instructions that
//! not all of their kind have.
#![allow(unsafe_code)]

/// What may be compiled twice. It has to be inlined, and what it calls, too: else it is compiled once.
pub(crate) trait Work {
    type Done;

    fn run(self) -> Self::Done;
}

/// Does the work, by those instructions if they are there.
pub(crate) fn with_bit_counts<W: Work>(work: W) -> W::Done {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "popcnt,bmi1,bmi2,lzcnt")]
        fn compiled<W: Work>(work: W) -> W::Done {
            work.run()
        }
        if is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
        {
            // SAFETY: the processor has what it was compiled for.
            return unsafe { compiled(work) };
        }
    }
    work.run()
}

/// Asks for the cache line of element `at`, and goes on. Any `at` will do.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing; an address that is not mapped is ignored.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(items.as_ptr().wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, at);
}
