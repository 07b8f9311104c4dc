//! The known contents: a word for each position, which depends on the seed too. Additions, shifts and exclusive ors only, so that the
//! compiler makes vector instructions of it.

/// What all words of a seed have in common: seeds that differ in one bit have nothing to do with each other.
fn key(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn word(key: u64, position: u64) -> u64 {
    let mut z = key.wrapping_add(position.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z ^= z >> 31;
    z = z.wrapping_add(z << 21);
    z ^= z >> 17;
    z = z.wrapping_add(z << 5);
    z ^ (z >> 29)
}

/// Writes the contents of a seed, from this position on.
pub fn fill(words: &mut [u64], seed: u64, first: u64) {
    let key = key(seed);
    for (position, place) in (first..).zip(words) {
        *place = word(key, position);
    }
}

/// Words that differ from it.
pub fn wrong(words: &[u64], seed: u64, first: u64) -> u64 {
    let key = key(seed);
    let differs = |(position, found): (u64, &u64)| u64::from(*found != word(key, position));
    (first..).zip(words).map(differs).sum()
}

/// Words that are not zero.
pub fn not_zero(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(*word != 0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn contents_depend_on_position_and_seed() {
        let mut all = HashSet::new();
        let mut words = vec![0; 4096];
        for seed in [0, 1, 2, 3, u64::MAX] {
            fill(&mut words, seed, 0);
            all.extend(words.iter().copied());
        }
        assert_eq!(all.len(), 5 * 4096, "no word is there twice");
        assert!(!all.contains(&0));
    }

    #[test]
    fn every_wrong_word_is_counted() {
        let mut words = vec![0; 1000];
        fill(&mut words, 7, 5_000_000_000);
        assert_eq!(wrong(&words, 7, 5_000_000_000), 0);
        assert_eq!(wrong(&words, 8, 5_000_000_000), 1000);
        assert_eq!(wrong(&words, 7, 5_000_000_001), 1000, "moved by one");
        words[3] ^= 1 << 63;
        words.swap(10, 11);
        assert_eq!(wrong(&words, 7, 5_000_000_000), 3);
        assert_eq!(not_zero(&[0, 1, 0, 2]), 2);
    }

    #[test]
    fn parts_make_the_whole() {
        let mut whole = vec![0; 300];
        fill(&mut whole, 9, 40);
        let mut part = vec![0; 100];
        fill(&mut part, 9, 140);
        assert_eq!(part, whole[100..200]);
    }
}
