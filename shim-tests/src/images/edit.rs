//! What is changed in a library or an image while its process is not there.

use std::path::Path;

use super::criu::Image;

/// Puts another build of a library in its place: as long as it was, with code at the same addresses, but another build id.
///
/// # Panics
/// When it has none.
pub fn replace_by_other_build(library: &Path) {
    // A note's head: the lengths of name and id, the kind, the name.
    const NOTE: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    let mut bytes = std::fs::read(library).expect("the library");
    let found = bytes.windows(NOTE.len()).position(|part| part == NOTE);
    let id = found.expect("a build id") + NOTE.len();
    for byte in &mut bytes[id..id + 20] {
        *byte = !*byte;
    }
    // Not written over: whoever has it mapped keeps what it has.
    let other = library.with_extension("new");
    // With its mode, which CRIU compares too.
    std::fs::copy(library, &other).expect("a library");
    std::fs::write(&other, bytes).expect("a library");
    std::fs::rename(&other, library).expect("a library");
}

/// Takes threads out of an image, as if they had been unknown to whoever made it: a thread born after CRIU's CUDA plugin has stopped
/// the world is.
///
/// # Panics
/// When the image has another form.
pub fn remove_threads(image: &Image, numbers: &[i32]) {
    let path = image.folder().join("pstree.img");
    let bytes = std::fs::read(&path).expect("the image");
    let changed = without_threads(&bytes, numbers);
    std::fs::write(&path, changed).expect("the image");
}

/// The list of processes, of which there is one: two numbers, the length of a message, and the message, whose fields are numbers.
fn without_threads(image: &[u8], numbers: &[i32]) -> Vec<u8> {
    const THREADS: u64 = 5 << 3;
    let (head, message) = image.split_at(12);
    let mut rest = message;
    let mut kept = Vec::new();
    while !rest.is_empty() {
        let field = rest;
        let key = take_number(&mut rest);
        let value = take_number(&mut rest);
        let removed = key == THREADS && numbers.contains(&(value as i32));
        if !removed {
            kept.extend_from_slice(&field[..field.len() - rest.len()]);
        }
    }
    let length = u32::try_from(kept.len()).expect("shorter than it was");
    [&head[..8], &length.to_le_bytes(), &kept].concat()
}

/// A number in seven bits a byte, the lowest first.
fn take_number(bytes: &mut &[u8]) -> u64 {
    let length = bytes
        .iter()
        .position(|byte| byte & 0x80 == 0)
        .expect("its end")
        + 1;
    let (number, rest) = bytes.split_at(length);
    *bytes = rest;
    let parts = number.iter().rev().map(|byte| u64::from(byte & 0x7f));
    parts.fold(0, |value, part| value << 7 | part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_leaves_the_list_of_processes() {
        // Process 16354 with threads 16354 and 16355, as CRIU 4.1.1 wrote it.
        let head = [0x19, 0x43, 0x56, 0x54, 0x30, 0x30, 0x27, 0x50];
        let process = [
            8, 0xe2, 0x7f, 16, 0, 24, 0xe2, 0x7f, 32, 0xe2, 0x7f, 40, 0xe2, 0x7f,
        ];
        let thread = [40, 0xe3, 0x7f];
        let image = [&head[..], &[17, 0, 0, 0], &process, &thread].concat();
        assert_eq!(without_threads(&image, &[1]), image);
        let expected = [&head[..], &[14, 0, 0, 0], &process].concat();
        assert_eq!(without_threads(&image, &[16355]), expected);
    }
}
