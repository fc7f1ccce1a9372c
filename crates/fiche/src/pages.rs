//! What a codec reads from and writes to. Contiguous bytes for now; page
//! arrays and lists of slices come behind the same two types.

/// The bytes a codec reads.
#[derive(Clone, Copy, Debug)]
pub struct Src<'a> {
    bytes: &'a [u8],
}

impl<'a> Src<'a> {
    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes as one slice.
    #[must_use]
    pub fn contiguous(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> From<&'a [u8]> for Src<'a> {
    fn from(bytes: &'a [u8]) -> Src<'a> {
        Src { bytes }
    }
}

/// The bytes a codec writes.
#[derive(Debug)]
pub struct Dst<'a> {
    bytes: &'a mut [u8],
}

impl<'a> Dst<'a> {
    /// How many bytes there is room for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True when there is room for none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The room as one slice.
    #[must_use]
    pub fn contiguous(self) -> &'a mut [u8] {
        self.bytes
    }
}

impl<'a> From<&'a mut [u8]> for Dst<'a> {
    fn from(bytes: &'a mut [u8]) -> Dst<'a> {
        Dst { bytes }
    }
}
