//! Pure: do these arguments look like the driver's buffer request?

/// Smallest request that is taken for the driver's buffer. A bare context needs 400 to 550 MB (H200, 580.159.04); what is
/// smaller gains nothing from helpers.
pub const SMALLEST: usize = 32 << 20;

/// Arguments of an `mmap` call.
#[derive(Clone, Copy, Debug)]
pub struct MapArgs {
    /// Hint or fixed address.
    pub addr: usize,
    /// Length in bytes.
    pub len: usize,
    /// Protection.
    pub prot: i32,
    /// Flags.
    pub flags: i32,
    /// Descriptor.
    pub fd: i32,
    /// File offset.
    pub offset: i64,
}

impl MapArgs {
    /// Private, anonymous, populated, readable and writable, at no particular address, long enough: the form of the driver's
    /// buffer request (driver-measured flags 0x8022). Who calls is for [`crate::caller`] to say.
    pub const fn looks_like_buffer(&self) -> bool {
        const KIND: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        const OTHER: i32 = libc::MAP_NORESERVE | libc::MAP_STACK;
        const ACCESS: i32 = libc::PROT_READ | libc::PROT_WRITE;
        self.flags & !OTHER == KIND
            && self.prot == ACCESS
            && self.addr == 0
            && self.offset == 0
            && self.len >= SMALLEST
            && self.len <= (isize::MAX as usize) / 2
    }

    /// Whether the call replaces whatever lies in its range.
    pub const fn is_fixed(&self) -> bool {
        self.flags & libc::MAP_FIXED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DRIVER: MapArgs = MapArgs {
        addr: 0,
        len: 9_145_044_112,
        prot: 3,
        flags: 0x8022,
        fd: -1,
        offset: 0,
    };

    #[test]
    fn the_recorded_request_matches() {
        assert!(DRIVER.looks_like_buffer());
    }

    #[test]
    fn each_deviation_is_refused() {
        let others = [
            MapArgs {
                addr: 0x10000,
                ..DRIVER
            },
            MapArgs {
                len: SMALLEST - 1,
                ..DRIVER
            },
            MapArgs {
                len: usize::MAX - 4096,
                ..DRIVER
            },
            MapArgs { prot: 1, ..DRIVER },
            MapArgs { prot: 7, ..DRIVER },
            MapArgs { prot: 0, ..DRIVER },
            MapArgs {
                flags: 0x22,
                ..DRIVER
            },
            MapArgs {
                flags: 0x8021,
                ..DRIVER
            },
            MapArgs {
                flags: 0x8002,
                ..DRIVER
            },
            MapArgs {
                flags: 0x8032,
                ..DRIVER
            },
            MapArgs {
                flags: 0x8022 | libc::MAP_HUGETLB,
                ..DRIVER
            },
            MapArgs {
                flags: 0x8022 | libc::MAP_LOCKED,
                ..DRIVER
            },
            MapArgs {
                flags: 0x8022 | libc::MAP_FIXED_NOREPLACE,
                ..DRIVER
            },
            MapArgs {
                offset: 4096,
                ..DRIVER
            },
        ];
        for other in others {
            assert!(!other.looks_like_buffer(), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn only_private_anonymous_populate_matches(flags in any::<i32>(), prot in any::<i32>(), len in any::<usize>()) {
            let args = MapArgs { flags, prot, len, ..DRIVER };
            if args.looks_like_buffer() {
                prop_assert_eq!(flags & 0x8022, 0x8022);
                prop_assert_eq!(flags & libc::MAP_FIXED, 0);
                prop_assert_eq!(prot, 3);
                prop_assert!(len >= SMALLEST);
            }
        }
    }
}
