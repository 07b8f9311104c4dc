//! Runs a fuzz target over its corpus, in the tests of the library and of the tool: each takes this file in by its path, so that neither
//! needs a package for it.

use std::path::Path;

/// Every file of the corpus of this name, each given to the target.
pub fn replay(name: &str, target: fn(&[u8])) {
    // The library's package is the root of the repository, the tool's lies below it.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut corpora = package.ancestors().map(|root| root.join("fuzz/corpus"));
    let folder = corpora.find(|corpora| corpora.is_dir());
    let folder = folder.expect("the corpora").join(name);
    let files: Vec<_> = std::fs::read_dir(&folder)
        .expect("a corpus")
        .flatten()
        .collect();
    assert!(
        files.len() >= 4,
        "{} files in {}",
        files.len(),
        folder.display()
    );
    for file in files {
        target(&std::fs::read(file.path()).expect("a file of the corpus"));
    }
}
