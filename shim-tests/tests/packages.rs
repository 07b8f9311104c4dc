//! What `scripts/package` built: the files themselves, and each package installed into a root of its own, where the tool must find the
//! library that came with it and a program must be checkpointed under it. `scripts/test` builds the packages, then runs these. What can be
//! tried of their parts without building them is in `parts`.

mod packages {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use cudasnap_shim_tests::elf::Facts;
    use cudasnap_shim_tests::folder::Folder;
    use cudasnap_shim_tests::package::{bare_root, done, files_below, inside, package, Installed};
    use cudasnap_shim_tests::shimmed::{library, Shimmed};
    use cudasnap_shim_tests::simdriver::{repository, SimDriver};
    use cudasnap_shim_tests::tool::{binary, Said};
    use object::elf::DF_1_NODELETE;

    /// The oldest glibc that they run with (`packages/floor.py`).
    const GLIBC: (u32, u32) = (2, 17);
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    /// What belongs to glibc of that time, and is there in every later one too.
    const LIBRARY_NEEDS: [&str; 4] = [
        "ld-linux-x86-64.so.2",
        "libc.so.6",
        "libdl.so.2",
        "libpthread.so.0",
    ];

    /// What the tool may need besides.
    const TOOL_NEEDS: [&str; 2] = ["libm.so.6", "librt.so.1"];

    fn sh(script: &str, arguments: &[&Path]) -> String {
        done(
            Command::new("sh")
                .args(["-euc", script, "sh"])
                .args(arguments),
        )
    }

    fn tarball(folder: &Folder) -> Installed {
        let file = package("cudasnap-", ".tar.gz");
        sh(
            "tar -C \"$2\" --strip-components=1 -xf \"$1\"",
            &[&file, folder.path()],
        );
        Installed::below(folder.path())
    }

    /// The folder that carries version and build of the library that lies in it.
    fn versioned(library: &Path) -> String {
        let folder = library.parent().unwrap().file_name().unwrap();
        folder.to_string_lossy().into_owned()
    }

    /// Tool and library of a package are of one build, and they work.
    fn works(installed: &Installed, prefix: &Path) {
        let said = done(&mut installed.tool(&["--version"]));
        assert_eq!(said.trim(), format!("cudasnap {VERSION}"));
        let library = installed.library();
        assert!(
            library.starts_with(prefix.canonicalize().unwrap()),
            "{library:?}"
        );
        let build = &Facts::of(&library).build_id[..12];
        assert_eq!(versioned(&library), format!("{VERSION}-{build}"));
        installed.checkpoints(&SimDriver::build(false));
    }

    /// All that every package has beside tool, library and licences.
    fn has_pages_and_completions(files: &[String], zsh: &str) {
        for script in [
            "entrypoint",
            "is-active",
            "restore-or-cold-start",
            "dump-and-restore",
        ] {
            let file = format!("bin/cudasnap-{script}");
            assert!(files.contains(&file), "{file}");
        }
        for page in ["cudasnap.1", "cudasnap-run.1", "cudasnap-checkpoint.1"] {
            assert!(
                files
                    .iter()
                    .any(|file| file.contains(&format!("share/man/man1/{page}"))),
                "{page}"
            );
        }
        for file in [
            "share/bash-completion/completions/cudasnap",
            "share/fish/vendor_completions.d/cudasnap.fish",
            zsh,
        ] {
            assert!(files.iter().any(|other| other.ends_with(file)), "{file}");
        }
    }

    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn they_run_with_the_oldest_glibc_that_is_written_down() {
        let folder = Folder::in_target();
        let installed = tarball(&folder);
        let packaged = Facts::of(&installed.library());
        assert_eq!(packaged.needed, LIBRARY_NEEDS);
        let tool = Facts::of(&folder.file("bin/cudasnap"));
        assert!(
            tool.needed
                .iter()
                .all(|name| LIBRARY_NEEDS.contains(&&**name) || TOOL_NEEDS.contains(&&**name)),
            "{:?}",
            tool.needed
        );
        for facts in [packaged, tool] {
            assert!(facts.glibc() <= GLIBC, "{:?}", facts.versions);
        }
    }

    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn the_library_exports_what_the_usual_build_exports() {
        let folder = Folder::in_target();
        let packaged = Facts::of(&tarball(&folder).library());
        let usual = Facts::of(&library());
        assert_eq!(packaged.exports, usual.exports);
        assert_eq!(packaged.flags, usual.flags);
        assert_ne!(packaged.flags & u64::from(DF_1_NODELETE), 0);
    }

    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn nothing_in_them_tells_where_they_were_built() {
        let folder = Folder::in_target();
        let library = tarball(&folder).library();
        let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME"));
        let places = [
            repository().to_string_lossy().into_owned(),
            format!("{}/", home.unwrap()),
        ];
        for file in [library, folder.file("bin/cudasnap")] {
            let bytes = std::fs::read(&file).unwrap();
            for place in &places {
                let is_there = bytes
                    .windows(place.len())
                    .any(|part| part == place.as_bytes());
                assert!(!is_there, "{place} is in {file:?}");
            }
        }
    }

    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn the_sums_are_those_of_all_files() {
        let dist = repository().join("dist");
        sh(
            "cd \"$1\"; sha256sum --strict --quiet -c SHA256SUMS",
            &[&dist],
        );
        let sums = std::fs::read_to_string(dist.join("SHA256SUMS")).unwrap();
        let mut named: Vec<&str> = sums.lines().map(|line| &line[66..]).collect();
        named.push("SHA256SUMS");
        named.sort_unstable();
        assert_eq!(files_below(&dist), named);
        assert_eq!(named.len(), 5);
    }

    /// The same sources make the same bytes, packing included: the tool and the library are built already.
    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn packing_them_again_makes_the_same_files() {
        let again = Folder::in_target();
        done(
            Command::new(repository().join("scripts/package"))
                .arg("--out")
                .arg(again.path().join("dist")),
        );
        let sums = |folder: PathBuf| std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
        assert_eq!(
            sums(again.path().join("dist")),
            sums(repository().join("dist"))
        );
    }

    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn the_tarball_works_from_any_folder() {
        let folder = Folder::in_target();
        let installed = tarball(&folder);
        works(&installed, folder.path());
        let files = installed.files();
        has_pages_and_completions(&files, "share/zsh/site-functions/_cudasnap");
        for text in [
            "README.md",
            "LICENSE-MIT",
            "LICENSE-APACHE",
            "THIRD-PARTY.txt",
        ] {
            assert!(
                files.contains(&format!("share/doc/cudasnap/{text}")),
                "{text}"
            );
        }
    }

    /// In an image of `examples/container/Dockerfile`, and in a pod's volume, the folders are at other places than in the tarball.
    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn the_tool_finds_its_library_where_images_have_it() {
        let root = bare_root(&["/bin/sh"]);
        let unpacked = Folder::in_target();
        let own = versioned(&tarball(&unpacked).library());
        let script = "mkdir -p \"$2/opt\" \"$2/usr/local\"\n\
            mv \"$1/lib/cudasnap\" \"$2/opt/\"; cp -R \"$1/bin\" \"$2/opt/cudasnap/\"; mv \"$1/bin\" \"$2/usr/local/\"";
        sh(script, &[unpacked.path(), root.path()]);
        for tool in ["/usr/local/bin/cudasnap", "/opt/cudasnap/bin/cudasnap"] {
            let command = [tool, "run", "--dry-run", "--json", "--", "/bin/sh"];
            let said = Said::by(inside(&root, &command).env_remove("CUDASNAP_LIB"));
            let library = format!("/opt/cudasnap/{own}/libcudasnap.so");
            assert_eq!(said.json()["library"], library, "{said:?}");
        }
    }

    /// Unpacked over an installation with another build: both libraries are there, and the tool takes its own.
    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn the_tarball_leaves_other_builds_alone() {
        let folder = Folder::in_target();
        let other = folder.write("lib/cudasnap/0.0.9-0123456789ab/libcudasnap.so", "other");
        let installed = tarball(&folder);
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "other");
        works(&installed, folder.path());
    }

    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn the_wheel_works_and_goes_without_a_trace() {
        let folder = Folder::in_target();
        let venv = folder.file("venv");
        sh("python3 -m venv \"$1\"", &[&venv]);
        let before = files_below(&venv);
        let wheel = package("cudasnap-", ".whl");
        let install = "\"$1/bin/python\" -m pip install --quiet --no-compile --no-index \"$2\"";
        sh(install, &[&venv, &wheel]);
        let installed = Installed::below(&venv);
        works(&installed, &venv);
        has_pages_and_completions(&installed.files(), "share/zsh/site-functions/_cudasnap");
        let told = sh("\"$1/bin/python\" -B -m cudasnap", &[&venv]);
        assert_eq!(Path::new(told.trim()), installed.library());
        let told = sh("\"$1/bin/python\" -B -m cudasnap --version", &[&venv]);
        assert_eq!(told.trim(), format!("cudasnap {VERSION}"));
        sh(
            "\"$1/bin/python\" -m pip uninstall --quiet --yes cudasnap",
            &[&venv],
        );
        assert_eq!(files_below(&venv), before);
    }

    /// `pip install --target` keeps modules and programs alone: who asks for the library is told.
    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn where_pip_leaves_the_library_out_the_module_says_so() {
        let folder = Folder::in_target();
        let wheel = package("cudasnap-", ".whl");
        let install =
            "python3 -m pip install --quiet --no-compile --no-index --target \"$1\" \"$2\"";
        sh(install, &[folder.path(), &wheel]);
        let mut asked = Command::new("python3");
        asked.args(["-B", "-m", "cudasnap"]).current_dir("/");
        let said = Said::by(asked.env("PYTHONPATH", folder.path()));
        assert_eq!((said.code, &*said.stdout), (1, ""), "{said:?}");
        let version = done(asked.arg("--version"));
        assert_eq!(version.trim(), format!("cudasnap {VERSION}"));
        assert!(
            said.stderr
                .starts_with("cudasnap: libcudasnap.so is not there: "),
            "{said:?}"
        );
    }

    /// A root that dpkg believes to have Debian's C library in it, and that has a real one.
    fn debian_root() -> Folder {
        let root = bare_root(&[
            "/bin/sh",
            "/bin/grep",
            "/bin/sleep",
            "/usr/bin/cut",
            "/usr/bin/stat",
            "/usr/bin/tr",
        ]);
        root.write(
            "var/lib/dpkg/status",
            "Package: libc6\nStatus: install ok installed\nMaintainer: x\nArchitecture: amd64\nVersion: 2.17\nDescription: x\n\n",
        );
        for folder in ["info", "updates", "triggers"] {
            std::fs::create_dir_all(root.file(&format!("var/lib/dpkg/{folder}"))).unwrap();
        }
        root
    }

    /// dpkg on that root, with its `/proc` mounted for as long as it runs: all processes of this machine are in it.
    fn dpkg(root: &Folder, arguments: &[&str]) -> Command {
        dpkg_in(&["--mount"], root, arguments)
    }

    /// The same where there are no other processes: those of other tests may be checkpointed just now.
    fn dpkg_alone(root: &Folder, arguments: &[&str]) -> Command {
        dpkg_in(&["--mount", "--pid", "--fork"], root, arguments)
    }

    fn dpkg_in(namespaces: &[&str], root: &Folder, arguments: &[&str]) -> Command {
        let script = "mount -t proc proc \"$0/proc\"; exec dpkg --force-not-root --root=\"$0\" --log=\"$0/dpkg.log\" \"$@\"";
        let mut command = Command::new("unshare");
        command.args(namespaces).args(["sh", "-euc", script]);
        command.arg(root.path()).args(arguments);
        command
    }

    fn deb(begin: &str) -> String {
        package(begin, "_amd64.deb").to_string_lossy().into_owned()
    }

    /// The same packages as another version and another build would be.
    fn next_version(folder: &Folder) -> [String; 2] {
        let script = "next=$1/$2; dpkg-deb -R \"$3\" \"$next\"; cd \"$next\"\n\
            for old in usr/lib/cudasnap/*; do [ ! -e \"$old\" ] || mv \"$old\" usr/lib/cudasnap/9.9.9-feedfacecafe; done\n\
            sed -i \"s/^Version: .*/Version: 9.9.9/; s/libcudasnap-[^ ]* (= .*)/libcudasnap-9.9.9-feedfacecafe (= 9.9.9)/;\
                s/^Package: libcudasnap.*/Package: libcudasnap-9.9.9-feedfacecafe/\" DEBIAN/control\n\
            [ ! -d usr/share/doc/libcudasnap-* ] || mv usr/share/doc/libcudasnap-* usr/share/doc/libcudasnap-9.9.9-feedfacecafe\n\
            rm DEBIAN/md5sums; dpkg-deb --root-owner-group -b . \"$next.deb\" >/dev/null";
        ["libcudasnap-", "cudasnap_"].map(|name| {
            sh(
                script,
                &[folder.path(), Path::new(name), Path::new(&deb(name))],
            );
            folder
                .file(&format!("{name}.deb"))
                .to_string_lossy()
                .into_owned()
        })
    }

    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn the_debian_packages_work() {
        let root = debian_root();
        let debs = [deb("libcudasnap-"), deb("cudasnap_")];
        done(&mut dpkg(&root, &["-i", &debs[0], &debs[1]]));
        let prefix = root.file("usr");
        works(&Installed::below(&prefix), &prefix);
        let files = files_below(&prefix);
        has_pages_and_completions(&files, "share/zsh/vendor-completions/_cudasnap");
        assert!(files.contains(&"share/doc/cudasnap/copyright".to_string()));
        // With nothing around them but the C library.
        let tool = ["/usr/bin/cudasnap", "--version"];
        let said = done(&mut inside(&root, &tool));
        assert_eq!(said.trim(), format!("cudasnap {VERSION}"));
        let under = [tool[0], "run", "--require", "--", "/bin/sh", "-c"];
        let preload = done(inside(&root, &under).arg("echo $LD_PRELOAD"));
        let file = preload.trim().trim_start_matches('/');
        assert!(
            preload.starts_with("/usr/lib/cudasnap/") && root.file(file).exists(),
            "{preload}"
        );
        assert_eq!(done(&mut dpkg(&root, &["--verify"])), "");
        done(&mut dpkg_alone(
            &root,
            &["-r", "cudasnap", &name_in(&debs[0])],
        ));
        let left = files_below(&prefix);
        assert!(
            !left.iter().any(|file| file.contains("cudasnap")),
            "{left:?}"
        );
    }

    /// A package's name, from the name of its file.
    fn name_in(deb: &str) -> String {
        let file = Path::new(deb).file_name().unwrap().to_string_lossy();
        file.split('_').next().unwrap().to_string()
    }

    /// A child of the test, ended with it.
    struct Running(std::process::Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn a_debian_upgrade_leaves_the_library_of_running_programs_until_they_end() {
        let root = debian_root();
        let (old, new) = ([deb("libcudasnap-"), deb("cudasnap_")], Folder::in_target());
        let next = next_version(&new);
        done(&mut dpkg(&root, &["-i", &old[0], &old[1]]));
        let library = Installed::below(&root.file("usr")).library();
        let top = root.path().canonicalize().unwrap();
        let there = Path::new("/").join(library.strip_prefix(top).unwrap());
        let command = "/usr/bin/cudasnap run --require -- /bin/sleep 600";
        let command: Vec<&str> = command.split(' ').collect();
        let sleeper = Running(inside(&root, &command).spawn().unwrap());
        let maps = format!("/proc/{}/maps", sleeper.0.id());
        cudasnap_shim_tests::tool::until("the library in the program", || {
            std::fs::read_to_string(&maps)
                .unwrap()
                .contains("libcudasnap.so")
        });
        done(&mut dpkg(&root, &["-i", &next[0], &next[1]]));
        assert!(library.exists(), "{there:?}");
        assert!(root
            .file("usr/lib/cudasnap/9.9.9-feedfacecafe/libcudasnap.so")
            .exists());
        let remove = || Said::by(&mut dpkg(&root, &["-r", &name_in(&old[0])]));
        let refused = remove();
        assert_ne!(refused.code, 0, "{refused:?}");
        let words = format!("{} is in use by: {} (", there.display(), sleeper.0.id());
        assert!(refused.stderr.contains(&words), "{words}: {refused:?}");
        assert!(library.exists());
        drop(sleeper);
        let removed = remove();
        assert_eq!(removed.code, 0, "{removed:?}");
        assert!(!library.exists());
    }

    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn the_tools_debian_package_stays_while_something_is_checkpointed() {
        let root = debian_root();
        let debs = [deb("libcudasnap-"), deb("cudasnap_")];
        done(&mut dpkg(&root, &["-i", &debs[0], &debs[1]]));
        let driver = SimDriver::build(false);
        let host = Shimmed::start(&driver, &["16"], &[]);
        let pid = host.app.pid();
        driver.does(&format!("checkpoint {pid}"));
        let refused = Said::by(&mut dpkg(&root, &["-r", "cudasnap"]));
        assert_ne!(refused.code, 0, "{refused:?}");
        let names = refused.stderr.contains(&format!(" {pid} "));
        assert!(
            names && refused.stderr.contains("cudasnap restore PID"),
            "{refused:?}"
        );
        let tool = done(&mut inside(&root, &["/usr/bin/cudasnap", "--version"]));
        assert_eq!(tool.trim(), format!("cudasnap {VERSION}"));
        driver.does(&format!("restore {pid}"));
        done(&mut dpkg_alone(&root, &["-r", "cudasnap"]));
        assert!(!root.file("usr/bin/cudasnap").exists());
    }

    /// `cargo install --path cli`: the tool alone. It says where it looks for the library, and takes one that it is told.
    #[test]
    #[ignore = "needs dist/: scripts/package"]
    fn cargo_installs_the_tool_which_says_what_it_misses() {
        let folder = Folder::in_target();
        let mut install = Command::new(env!("CARGO"));
        install.args(["install", "--quiet", "--locked", "--offline", "--no-track"]);
        install.args(["--path", "cli", "--root"]).arg(folder.path());
        // Where the release build is already.
        let target = binary().ancestors().nth(2).unwrap().to_path_buf();
        install
            .current_dir(repository())
            .env("CARGO_TARGET_DIR", target);
        done(&mut install);
        let tool = folder.path().canonicalize().unwrap().join("bin/cudasnap");
        let root = bare_root(&[
            "/bin/sh",
            tool.to_str().unwrap(),
            library().to_str().unwrap(),
        ]);
        let tool_path = tool.to_str().unwrap();
        let run = |variable: &str| {
            let command = [tool_path, "run", "--dry-run", "--require", "--", "/bin/sh"];
            Said::by(inside(&root, &command).env("CUDASNAP_LIB", variable))
        };
        let without = run("");
        assert_eq!(without.code, 4, "{without:?}");
        let beside = tool
            .ancestors()
            .nth(2)
            .unwrap()
            .join("lib/cudasnap/libcudasnap.so");
        for place in [beside.to_str().unwrap(), "/opt/cudasnap/", "CUDASNAP_LIB"] {
            assert!(without.stdout.contains(place), "{place}: {without:?}");
        }
        let named = run(library().to_str().unwrap());
        assert_eq!(named.code, 0, "{named:?}");
        let said = done(Command::new(&tool).arg("--version"));
        assert_eq!(said.trim(), format!("cudasnap {VERSION}"));
    }
}

mod parts {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use cudasnap_shim_tests::folder::Folder;
    use cudasnap_shim_tests::shimmed::{library, Shimmed};
    use cudasnap_shim_tests::simdriver::{repository, SimDriver};
    use cudasnap_shim_tests::tool::{binary, Said};

    /// A folder for PATH with links to these programs alone.
    fn path_with(folder: &Folder, programs: &[&str]) -> PathBuf {
        let path = folder.file("path");
        std::fs::create_dir_all(&path).unwrap();
        for program in programs {
            let which = format!("command -v {program}");
            let found = Said::by(Command::new("sh").args(["-c", &which])).stdout;
            std::os::unix::fs::symlink(found.trim(), path.join(program)).unwrap();
        }
        path
    }

    fn executable(folder: &Folder, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.write(name, text);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn read(path: &str) -> String {
        std::fs::read_to_string(repository().join(path)).unwrap()
    }

    /// Python by its file: where PATH has next to nothing it is found no more.
    fn python() -> String {
        let ask = ["-c", "import sys; print(sys.executable)"];
        let said = Said::by(Command::new("python3").args(ask));
        said.stdout.trim().to_owned()
    }

    // scripts/package

    #[test]
    fn what_a_build_misses_is_told_with_how_to_install_it() {
        let folder = Folder::new();
        let mut package = Command::new(python());
        package.arg(repository().join("scripts/package"));
        package.arg("--out").arg(folder.file("dist"));
        let said = Said::by(
            package
                .env("PATH", path_with(&folder, &["git"]))
                .env_remove("CC"),
        );
        assert_eq!(said.code, 2, "{said:?}");
        let lines: Vec<&str> = said.stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{said:?}");
        assert!(lines[0].starts_with("package: Rust is missing: ") && lines[0].contains("rustup"));
        assert!(lines[1].starts_with("package: a C compiler (cc) is missing: "));
    }

    #[test]
    fn a_build_that_fails_is_told_in_a_line() {
        let folder = Folder::new();
        // What is fetched and made once is there already.
        let zig = read("packages/zig.txt");
        let recipe = format!("{zig}{}", read("packages/floor.py"));
        folder.write("package/zig/zig.txt", &zig);
        folder.write("package/glibc-2.17/made-by", &recipe);
        let path = path_with(&folder, &["git", "cc", "sh"]);
        executable(
            &folder,
            "path/cargo",
            "#!/bin/sh\necho 'error: no' >&2\nexit 101\n",
        );
        let mut package = Command::new(python());
        package.arg(repository().join("scripts/package"));
        package.arg("--out").arg(folder.file("dist"));
        package
            .env("CARGO_TARGET_DIR", folder.path())
            .env_remove("CC");
        let said = Said::by(package.env("PATH", path));
        assert_eq!(said.code, 1, "{said:?}");
        let lines: Vec<&str> = said.stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{said:?}");
        assert!(lines[1].starts_with("package: cargo build ") && lines[1].ends_with(" status 101"));
        assert!(!folder.file("dist").exists());
    }

    // python -m cudasnap

    /// An environment as pip leaves it, below a folder of this name: module, notes, a program and a library.
    fn environment(folder: &Folder, name: &str) -> Command {
        for file in ["__init__.py", "__main__.py"] {
            let text = read(&format!("packages/python/cudasnap/{file}"));
            folder.write(&format!("{name}/site/cudasnap/{file}"), &text);
        }
        folder.write(
            &format!("{name}/site/cudasnap-1.dist-info/METADATA"),
            "Metadata-Version: 2.1\nName: cudasnap\nVersion: 1\n",
        );
        folder.write(
            &format!("{name}/site/cudasnap-1.dist-info/RECORD"),
            "../share/completions/cudasnap,,\n../bin/cudasnap,,\n../lib/libcudasnap.so,,\n",
        );
        folder.write(&format!("{name}/share/completions/cudasnap"), "");
        folder.write(&format!("{name}/lib/libcudasnap.so"), "");
        executable(
            folder,
            &format!("{name}/bin/cudasnap"),
            "#!/bin/sh\necho \"tool: $*\"\nexit 3\n",
        );
        let mut python = Command::new("python3");
        // The module is looked for in the folder that it is started in; PYTHONPATH takes no colons either.
        let site = folder.file(&format!("{name}/site"));
        python.args(["-B", "-m", "cudasnap"]).current_dir(site);
        python
    }

    #[test]
    fn the_python_module_prints_the_path_or_becomes_the_tool() {
        let folder = Folder::new();
        let said = Said::by(&mut environment(&folder, "venv"));
        let path = folder
            .file("venv/lib/libcudasnap.so")
            .canonicalize()
            .unwrap();
        assert_eq!(
            said.parts(),
            (0, format!("{}\n", path.display()), String::new())
        );
        let said = Said::by(environment(&folder, "venv").args(["status", "--json"]));
        assert_eq!(
            said.parts(),
            (3, "tool: status --json\n".into(), String::new())
        );
        std::fs::remove_file(folder.file("venv/bin/cudasnap")).unwrap();
        let mut python = Command::new("python3");
        python.args(["-B", "-m", "cudasnap", "status"]);
        let said = Said::by(python.current_dir(folder.file("venv/site")));
        assert_eq!((said.code, &*said.stdout), (1, ""));
        assert!(
            said.stderr
                .starts_with("cudasnap: the program cudasnap is not there"),
            "{said:?}"
        );
    }

    #[test]
    fn the_python_module_prints_no_path_that_cannot_be_preloaded() {
        let folder = Folder::new();
        for name in ["a b", "a:b", "a$b"] {
            let said = Said::by(&mut environment(&folder, name));
            assert_eq!((said.code, &*said.stdout), (1, ""), "{name}");
            assert!(said.stderr.contains("cannot be preloaded"), "{said:?}");
        }
    }

    // What dpkg asks before it removes a package

    /// A script of `packages/debian` with these words in place of others, where there are only these programs.
    fn prerm(name: &str, words: (&str, &Path), programs: &[&str]) -> Said {
        let folder = Folder::new();
        let text = read(&format!("packages/debian/{name}"));
        assert!(text.contains(words.0));
        let script = folder.write("prerm", &text.replace(words.0, words.1.to_str().unwrap()));
        let mut command = Command::new("/bin/sh");
        command.arg(script).arg("remove");
        Said::by(command.env("PATH", path_with(&folder, programs)))
    }

    #[test]
    fn a_library_in_use_stays_with_and_without_stat() {
        let driver = SimDriver::build(false);
        let host = Shimmed::start(&driver, &["16"], &[]);
        let pid = format!(" {} ", host.app.pid());
        for programs in [&["grep", "cut", "tr", "stat"][..], &["grep", "cut", "tr"]] {
            let said = prerm("prerm.library", ("@LIBRARY@", &library()), programs);
            assert_eq!(said.code, 1, "{said:?}");
            assert!(said.stderr.contains("is in use by: "), "{said:?}");
            assert!(said.stderr.contains(&pid), "{said:?}");
        }
    }

    #[test]
    fn the_tool_stays_while_something_is_checkpointed() {
        let driver = SimDriver::build(false);
        let host = Shimmed::start(&driver, &["16"], &[]);
        let pid = host.app.pid();
        let asked = || {
            let programs = ["grep", "cut"];
            prerm("prerm.tool", ("/usr/bin/cudasnap", &binary()), &programs)
        };
        // Others on this machine may wait too.
        let names = |said: &Said| said.stderr.contains(&format!(" {pid} "));
        assert!(!names(&asked()));
        driver.does(&format!("checkpoint {pid}"));
        let said = asked();
        assert_eq!(said.code, 1, "{said:?}");
        assert!(
            names(&said) && said.stderr.contains("cudasnap restore PID"),
            "{said:?}"
        );
        driver.does(&format!("restore {pid}"));
        assert!(!names(&asked()));
    }
}
