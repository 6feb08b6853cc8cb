//! Operations, and the types of elements.

/// How two elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The sum. Integers wrap.
    Sum = 1,
    /// The product. Integers wrap.
    Product = 2,
    /// The smaller one; NaN if one of them is.
    Min = 3,
    /// The larger one; NaN if one of them is.
    Max = 4,
    /// Bits that are set in both; of integers only, like those below.
    And = 5,
    /// Bits that are set in one of them.
    Or = 6,
    /// Bits that are set in exactly one.
    Xor = 7,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Sum,
        Self::Product,
        Self::Min,
        Self::Max,
        Self::And,
        Self::Or,
        Self::Xor,
    ];

    /// Its name, for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
        }
    }

    /// The bit that stands for it where operations are listed.
    pub const fn bit(self) -> u8 {
        1 << (self as u8)
    }

    /// Whether there is such an operation on elements of a type.
    pub const fn takes(self, element: Element) -> bool {
        !element.is_float() || !matches!(self, Self::And | Self::Or | Self::Xor)
    }

    /// Whether the result depends on the order: only sums and products of floats are rounded.
    pub const fn is_ordered(self, element: Element) -> bool {
        element.is_float() && matches!(self, Self::Sum | Self::Product)
    }
}

/// The type of an element, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// Signed, 32 bits.
    I32 = 1,
    /// Signed, 64 bits.
    I64 = 2,
    /// Unsigned, 32 bits.
    U32 = 3,
    /// Unsigned, 64 bits.
    U64 = 4,
    /// IEEE 754 binary16.
    F16 = 5,
    /// The upper half of a binary32.
    Bf16 = 6,
    /// IEEE 754 binary32.
    F32 = 7,
    /// IEEE 754 binary64.
    F64 = 8,
}

impl Element {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::I32,
        Self::I64,
        Self::U32,
        Self::U64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
    ];

    /// Its name, for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// The bit that stands for it where types are listed.
    pub const fn bit(self) -> u8 {
        1 << (self as u8 - 1)
    }

    /// Bytes of an element.
    #[expect(clippy::len_without_is_empty, reason = "a size")]
    pub const fn len(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Whether so many bytes are whole elements.
    pub const fn divides(self, len: usize) -> bool {
        len.is_multiple_of(self.len())
    }

    /// Whether it is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }
}
