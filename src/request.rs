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

    /// Flags of which every bit matters, near the driver's.
    fn flags() -> impl Strategy<Value = i32> {
        prop_oneof![
            Just(DRIVER.flags),
            (0u32..31).prop_map(|bit| DRIVER.flags ^ (1 << bit)),
            any::<i32>(),
        ]
    }

    proptest! {
        /// The rule once more, in other words.
        #[test]
        fn it_matches_exactly_when_the_rule_says_so(
            flags in flags(),
            prot in prop_oneof![3 => Just(3), 1 => 0..8i32],
            addr in prop_oneof![3 => Just(0usize), 1 => any::<usize>()],
            offset in prop_oneof![3 => Just(0i64), 1 => any::<i64>()],
            len in prop_oneof![any::<usize>(), SMALLEST - 2..SMALLEST + 2, Just(usize::MAX / 4), Just(usize::MAX / 4 + 1)],
            fd in any::<i32>(),
        ) {
            let args = MapArgs { addr, len, prot, flags, fd, offset };
            let kind = [libc::MAP_PRIVATE, libc::MAP_ANONYMOUS, libc::MAP_POPULATE];
            let allowed = [libc::MAP_NORESERVE, libc::MAP_STACK];
            let wanted = (0..32).all(|bit| {
                let bit = 1i32.wrapping_shl(bit);
                let set = flags & bit != 0;
                if kind.contains(&bit) { set } else { !set || allowed.contains(&bit) }
            });
            let room = len >> 20 >= 32 && len <= usize::MAX >> 2;
            prop_assert_eq!(args.looks_like_buffer(), wanted && room && prot == 3 && addr == 0 && offset == 0);
            prop_assert_eq!(args.is_fixed(), flags & 0x10 != 0);
        }

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
