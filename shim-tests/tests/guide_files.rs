//! What the guides and examples say of files: links lead somewhere, manifests are what a cluster takes, the image has what its entrypoint names.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use cudasnap_shim_tests::simdriver::repository;
use yaml_rust2::{Yaml, YamlLoader};

fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files of this kind below a folder.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![repository().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

mod links {
    use super::*;

    /// `text` and `path#anchor` of each link of a document, code left out.
    fn links(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut code = false;
        for line in text.lines() {
            code ^= line.starts_with("```");
            for part in line.split("](").skip(1).filter(|_| !code) {
                let target = part.split(')').next().unwrap_or_default();
                found.push(target.to_owned());
            }
        }
        found
    }

    /// What GitHub makes of a heading.
    fn anchors(text: &str) -> BTreeSet<String> {
        let mut code = false;
        let mut found = BTreeSet::new();
        for line in text.lines() {
            code ^= line.starts_with("```");
            let heading = line.trim_start_matches('#');
            if !code && heading.len() < line.len() {
                let kept = heading.trim().to_lowercase();
                let kept = kept
                    .chars()
                    .filter(|&c| c.is_alphanumeric() || "-_ ".contains(c));
                found.insert(kept.collect::<String>().replace(' ', "-"));
            }
        }
        found
    }

    /// Without `..`, and without asking the file system.
    fn normal(path: &Path) -> PathBuf {
        let mut parts = PathBuf::new();
        for part in path.components() {
            match part {
                Component::ParentDir => {
                    parts.pop();
                }
                other => parts.push(other),
            }
        }
        parts
    }

    fn dead(document: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(document).expect("a document");
        let leads = |target: &String| {
            if target.contains("://") {
                return true;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = match path {
                "" => document.to_owned(),
                path => normal(&document.parent().expect("a folder").join(path)),
            };
            let has = |anchor: &str| {
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                anchor.is_empty() || anchors(&text).contains(anchor)
            };
            file.exists() && has(anchor)
        };
        let dead = links(&text).into_iter().filter(|target| !leads(target));
        dead.map(|target| format!("{}: {target}", document.display()))
            .collect()
    }

    #[test]
    fn none_is_dead() {
        let mut documents = files("docs", ".md");
        documents.push(repository().join("README.md"));
        let dead: Vec<String> = documents.iter().flat_map(|path| dead(path)).collect();
        assert_eq!(dead, [""; 0]);
    }

    /// Documents as packages have them, below a folder.
    const WRITES: &str = "import os, sys\nsys.dont_write_bytecode = True\n\
        sys.path.insert(0, 'packages')\nimport contents\n\
        texts = contents.texts('https://repository')\n\
        for path, file in texts.items():\n    \
            to = os.path.join(sys.argv[1], path)\n    \
            os.makedirs(os.path.dirname(to), exist_ok=True)\n    \
            open(to, 'wb').write(file.data)\n\
        print(contents.readme([], 'https://repository'))\n";

    /// Links of a package's documents lead to what is in it, or to what the repository has.
    #[test]
    fn none_is_dead_in_packages() {
        let folder = cudasnap_shim_tests::folder::Folder::new();
        let mut python = std::process::Command::new("python3");
        python.args(["-c", WRITES]).arg(folder.path());
        let alone = cudasnap_shim_tests::package::done(python.current_dir(repository()));
        let mut documents: Vec<PathBuf> = vec![folder.file("README.md")];
        documents.extend(files(folder.file("docs").to_str().expect("text"), ".md"));
        assert!(documents.len() > 15);
        let dead: Vec<String> = documents.iter().flat_map(|path| dead(path)).collect();
        assert_eq!(dead, [""; 0]);
        let texts = documents.iter().map(read).chain([alone.clone()]);
        let leads_out = texts.flat_map(|text| links(&text));
        let paths = leads_out.filter_map(|link| {
            let path = link.strip_prefix("https://repository/")?;
            let path = path
                .strip_prefix("blob/main/")
                .or(path.strip_prefix("tree/main/"));
            path?.split('#').next().map(str::to_owned)
        });
        let paths: Vec<String> = paths.collect();
        assert!(paths.len() > 10);
        for path in paths {
            assert!(repository().join(&path).exists(), "{path}");
        }
        assert!(links(&alone)
            .iter()
            .all(|link| link.starts_with('#') || link.contains("://")));
        assert!(read(folder.file("README.md")).contains("came with a package"));
    }

    #[test]
    fn every_guide_is_linked_from_the_readme() {
        let readme = links(&read("README.md"));
        for guide in files("docs/guides", ".md") {
            let path = guide.strip_prefix(repository()).expect("below");
            let path = path.to_string_lossy().into_owned();
            assert!(readme.contains(&path), "{path}");
        }
    }

    #[test]
    fn every_example_is_linked_from_a_guide() {
        let mut linked = BTreeSet::new();
        for guide in files("docs/guides", ".md") {
            let text = std::fs::read_to_string(&guide).expect("a guide");
            let folder = guide.parent().expect("a folder").to_owned();
            let targets = links(&text).into_iter();
            linked.extend(targets.map(|target| normal(&folder.join(target))));
        }
        for example in files("examples", "") {
            // What goes with the Dockerfile by its name.
            let alone = !example.to_string_lossy().ends_with(".dockerignore");
            assert!(!alone || linked.contains(&example), "{}", example.display());
        }
    }

    #[test]
    fn what_others_published_is_marked_and_named() {
        for name in ["sglang", "vllm"] {
            let text = read(format!("docs/guides/{name}.md"));
            assert!(text.contains("published by others and not tested here"));
            let table = text
                .lines()
                .skip_while(|line| !line.contains("published by (not tested here)"));
            let rows: Vec<&str> = table
                .skip(2)
                .take_while(|line| line.starts_with('|'))
                .collect();
            assert!(rows.len() > 10, "{name}");
            for row in rows {
                let cells = row.trim_end_matches('|').rsplit('|');
                let source = cells.map(str::trim).next().unwrap_or_default();
                assert!(source.len() > 7, "{name}: {row}");
            }
        }
    }
}

mod manifests {
    use super::*;

    /// What a pod and its parts may have, of those that are used here: a misspelt key is none of them.
    const POD: [&str; 7] = [
        "automountServiceAccountToken",
        "containers",
        "hostPID",
        "initContainers",
        "nodeSelector",
        "terminationGracePeriodSeconds",
        "volumes",
    ];
    const CONTAINER: [&str; 11] = [
        "args",
        "command",
        "env",
        "image",
        "name",
        "ports",
        "readinessProbe",
        "resources",
        "securityContext",
        "startupProbe",
        "volumeMounts",
    ];

    fn documents(path: &Path) -> Vec<Yaml> {
        let text = std::fs::read_to_string(path).expect("a manifest");
        let parsed = YamlLoader::load_from_str(&text);
        parsed.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn keys(map: &Yaml) -> Vec<&str> {
        let map = map.as_hash().expect("a map");
        map.keys().map(|key| key.as_str().expect("text")).collect()
    }

    fn list(value: &Yaml) -> &[Yaml] {
        value.as_vec().map_or(&[], Vec::as_slice)
    }

    fn text(value: &Yaml) -> &str {
        value
            .as_str()
            .unwrap_or_else(|| panic!("no text: {value:?}"))
    }

    fn container_is_sound(container: &Yaml, volumes: &[&str]) {
        let name = text(&container["name"]);
        for key in keys(container) {
            assert!(CONTAINER.contains(&key), "{name}: {key}");
        }
        let _image = text(&container["image"]);
        for word in list(&container["command"])
            .iter()
            .chain(list(&container["args"]))
        {
            let _word = text(word);
        }
        for variable in list(&container["env"]) {
            assert_eq!(keys(variable), ["name", "value"], "{name}");
            // A number would be refused.
            let _value = text(&variable["value"]);
        }
        for mount in list(&container["volumeMounts"]) {
            assert!(volumes.contains(&text(&mount["name"])), "{name}: {mount:?}");
            assert!(text(&mount["mountPath"]).starts_with('/'));
        }
        assert!(container["livenessProbe"].is_badvalue(), "{name}");
    }

    fn pod_is_sound(template: &Yaml, selector: &Yaml) {
        assert_eq!(template["metadata"]["labels"], *selector);
        let pod = &template["spec"];
        for key in keys(pod) {
            assert!(POD.contains(&key), "{key}");
        }
        let volumes: Vec<&str> = list(&pod["volumes"])
            .iter()
            .map(|volume| text(&volume["name"]))
            .collect();
        let containers = list(&pod["containers"]);
        assert!(!containers.is_empty());
        for container in containers.iter().chain(list(&pod["initContainers"])) {
            container_is_sound(container, &volumes);
        }
        let memory = &containers[0]["resources"]["limits"]["memory"];
        assert!(text(memory).ends_with("Gi"));
    }

    #[test]
    fn each_is_something_that_a_cluster_takes() {
        let paths = files("examples/kubernetes", ".yaml");
        assert_eq!(paths.len(), 3);
        for path in paths {
            let mut labels = None;
            for document in documents(&path) {
                let kind = text(&document["kind"]).to_owned();
                let _name = text(&document["metadata"]["name"]);
                let spec = &document["spec"];
                match &*kind {
                    "Deployment" | "DaemonSet" => {
                        assert_eq!(text(&document["apiVersion"]), "apps/v1");
                        let selector = &spec["selector"]["matchLabels"];
                        pod_is_sound(&spec["template"], selector);
                        labels = Some(selector.clone());
                    }
                    "Service" => {
                        assert_eq!(text(&document["apiVersion"]), "v1");
                        assert_eq!(Some(&spec["selector"]), labels.as_ref());
                    }
                    other => panic!("{}: {other}", path.display()),
                }
            }
            assert!(labels.is_some());
        }
    }

    /// What the init container of an engine's pod has its shell do.
    pub fn brings(name: &str) -> String {
        let path = repository().join(format!("examples/kubernetes/{name}.yaml"));
        let pod = &documents(&path)[0]["spec"]["template"]["spec"];
        text(&pod["initContainers"][0]["command"][2]).to_owned()
    }

    /// The engine runs through the entrypoint, where the init container puts it.
    #[test]
    fn engines_start_through_the_entrypoint_that_was_brought() {
        for (name, words) in [
            ("sglang", &["python3", "-m", "sglang.launch_server"][..]),
            ("vllm", &["vllm", "serve"]),
        ] {
            let path = repository().join(format!("examples/kubernetes/{name}.yaml"));
            let documents = documents(&path);
            let pod = &documents[0]["spec"]["template"]["spec"];
            let engine = &pod["containers"][0];
            let command: Vec<&str> = list(&engine["command"]).iter().map(text).collect();
            assert_eq!(command[0], "/opt/cudasnap/bin/cudasnap-entrypoint");
            assert_eq!(&command[1..], words);
            let at = |container: &Yaml| {
                let mounts = list(&container["volumeMounts"]).iter();
                let mut found = mounts.filter(|mount| text(&mount["name"]) == "cudasnap");
                text(&found.next().expect("a mount")["mountPath"]).to_owned()
            };
            assert_eq!(
                (at(&pod["initContainers"][0]), at(engine)),
                ("/share".into(), "/opt/cudasnap".into())
            );
        }
    }

    #[test]
    fn the_compose_file_names_what_is_there() {
        let folder = repository().join("examples/container");
        let document = &documents(&folder.join("compose.yaml"))[0];
        let services = document["services"].as_hash().expect("services");
        let volumes = keys(&document["volumes"]);
        for (name, service) in services {
            let build = &service["build"];
            let context = folder.join(text(&build["context"]));
            assert!(
                context.join(text(&build["dockerfile"])).exists(),
                "{name:?}"
            );
            for volume in list(&service["volumes"]) {
                let volume = text(volume).split(':').next().unwrap_or_default();
                assert!(volumes.contains(&volume), "{name:?}: {volume}");
            }
            if let Some(other) = service["pid"].as_str() {
                let other = other.strip_prefix("service:").expect("a service");
                assert!(
                    services.contains_key(&Yaml::String(other.into())),
                    "{other}"
                );
            }
        }
    }
}

mod image {
    use std::process::Command;

    use cudasnap_shim_tests::folder::Folder;
    use cudasnap_shim_tests::package::done;
    use cudasnap_shim_tests::tool::Said;

    use super::*;

    /// Instructions with their words, lines that go on joined.
    fn instructions() -> Vec<String> {
        let text = read("examples/container/Dockerfile");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
        let found = joined
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        found.filter(|line| !line.is_empty()).collect()
    }

    #[test]
    fn stages_are_built_from_what_is_declared_and_copied_from_what_is_there() {
        let mut names = BTreeSet::new();
        let mut arguments = BTreeSet::new();
        for line in instructions() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "ARG" => drop(
                    arguments.insert(words[1].split('=').next().unwrap_or_default().to_owned()),
                ),
                "FROM" => {
                    let from = words[1].trim_start_matches("${").trim_end_matches('}');
                    assert!(arguments.contains(from), "{line}");
                    names.extend(words.get(3).map(|&name| name.to_owned()));
                }
                "COPY" if words[1].starts_with("--from=") => {
                    assert!(names.contains(&words[1][7..]), "{line}");
                }
                "COPY" if !words[1].contains('$') => {
                    assert!(repository().join(words[1]).exists(), "{line}");
                }
                _ => {}
            }
        }
        assert_eq!(
            names.into_iter().collect::<Vec<_>>(),
            ["build", "origin", "release"]
        );
    }

    /// The last `RUN` of a stage, with the paths of the image below this folder.
    fn commands(stage: &str, folder: &Folder) -> Command {
        let lines = instructions().into_iter();
        let stage = format!(" AS {stage}");
        let of_stage = lines
            .skip_while(|line| !line.ends_with(&stage))
            .skip(1)
            .take_while(|line| !line.starts_with("FROM "));
        let last = of_stage.filter(|line| line.starts_with("RUN ")).last();
        let top = folder.path().to_str().expect("text");
        let script = last.expect("commands")["RUN ".len()..]
            .replace("/image", &format!("{top}/image"))
            .replace("/tmp/release", &format!("{top}/release"));
        let mut command = Command::new("sh");
        command.args(["-euc", &script]).current_dir(folder.path());
        command
    }

    /// What the stage `build` leaves, its commands run on a folder that looks as it does when the compiler is done.
    fn built() -> Folder {
        let folder = Folder::new();
        folder.write("target/release/libcudasnap.so", "");
        folder.write("target/release/cudasnap", "");
        folder.write("Cargo.toml", &read("Cargo.toml"));
        for example in files("examples", "") {
            let path = example.strip_prefix(repository()).expect("below");
            folder.write(path.to_str().expect("text"), &read(path));
        }
        let _ = done(&mut commands("build", &folder));
        folder
    }

    /// A tarball as `scripts/package` lays it out, of empty files.
    const PACKS: &str = "import sys\nsys.dont_write_bytecode = True\n\
        sys.path.insert(0, 'packages')\nimport archives, contents\n\
        tree = {f'bin/{name}': contents.File(b'', 0o755) for name in ['cudasnap', *contents.PROGRAMS]}\n\
        built = contents.Built('/dev/null', '', 'c0ffee' * 7, sys.argv[2], '', 0)\n\
        tree |= contents.library(built)\n\
        open(sys.argv[1], 'wb').write(archives.tar_gz(tree, 0, 'cudasnap/'))\n";

    fn pack(folder: &Folder, name: &str) {
        let to = folder.write(&format!("release/{name}.tar.gz"), "");
        let mut python = Command::new("python3");
        python.args(["-c", PACKS]).arg(to).arg(VERSION);
        let _ = done(python.current_dir(repository()));
    }

    /// What the stage `release` leaves.
    fn unpacked() -> Folder {
        let folder = Folder::new();
        pack(&folder, "one");
        let _ = done(&mut commands("release", &folder));
        folder
    }

    /// Of all stages that bring library and tool: what is in the image.
    fn images() -> [(&'static str, Folder); 2] {
        [("build", built()), ("release", unpacked())]
    }

    /// The only folder with a library below this one.
    fn of_library(folder: &Path) -> String {
        let entries = std::fs::read_dir(folder).expect("a folder").flatten();
        let with = entries.filter(|entry| entry.path().join("libcudasnap.so").exists());
        let names: Vec<String> = with
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names.len(), 1, "{}: {names:?}", folder.display());
        names.concat()
    }

    fn is_program(path: &Path) -> bool {
        use std::os::unix::fs::PermissionsExt;
        let data = path.metadata();
        data.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 == 0o111)
    }

    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const PROGRAMS: [&str; 5] = [
        "cudasnap",
        "cudasnap-entrypoint",
        "cudasnap-is-active",
        "cudasnap-restore-or-cold-start",
        "cudasnap-dump-and-restore",
    ];

    #[test]
    fn what_is_installed_is_what_the_entrypoint_and_the_tool_look_for() {
        let entrypoint = instructions()
            .into_iter()
            .find(|line| line.starts_with("ENTRYPOINT"));
        let entrypoint = entrypoint.expect("an entrypoint");
        let named = entrypoint.split('"').nth(1).expect("a path");
        for (stage, folder) in images() {
            let image = folder.file("image");
            assert!(is_program(&image.join(&named[1..])), "{stage}: {named}");
            for name in PROGRAMS {
                assert!(
                    is_program(&image.join("usr/local/bin").join(name)),
                    "{stage}: {name}"
                );
            }
            let of_library = of_library(&image.join("opt/cudasnap"));
            assert!(of_library.starts_with(VERSION), "{stage}: {of_library}");
        }
    }

    /// The init container's command, run where the image has its files: the volume has all of them, whatever the image was made from.
    #[test]
    fn pods_get_library_and_programs_from_an_image_of_either_origin() {
        for (stage, folder) in images() {
            let image = folder.file("image");
            let image = image.to_str().expect("text");
            for engine in ["sglang", "vllm"] {
                let share = folder.file(engine);
                std::fs::create_dir_all(&share).expect("a folder");
                let script = manifests::brings(engine)
                    .replace("/opt/", &format!("{image}/opt/"))
                    .replace("/usr/local/", &format!("{image}/usr/local/"))
                    .replace("/share/", &format!("{}/", share.display()));
                let _ = done(Command::new("sh").args(["-c", &script]));
                for name in PROGRAMS {
                    let path = share.join("bin").join(name);
                    assert!(is_program(&path), "{stage}, {engine}: {name}");
                }
                let of_library = of_library(&share);
                assert!(of_library.starts_with(VERSION), "{stage}: {of_library}");
            }
        }
    }

    #[test]
    fn of_several_releases_none_is_taken() {
        let folder = Folder::new();
        pack(&folder, "one");
        pack(&folder, "other");
        let said = Said::by(&mut commands("release", &folder));
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.stderr.contains("--build-arg RELEASE="), "{said:?}");
    }

    #[test]
    fn scripts_are_executable_and_understood_by_their_shells() {
        use std::os::unix::fs::PermissionsExt;
        let mut count = 0;
        for path in files("examples", "") {
            let text = std::fs::read_to_string(&path).expect("text");
            let Some(shell) = text.lines().next().and_then(|line| line.strip_prefix("#!")) else {
                continue;
            };
            count += 1;
            let mode = path.metadata().expect("a file").permissions().mode();
            assert_eq!(mode & 0o111, 0o111, "{}", path.display());
            let shell = shell.rsplit(['/', ' ']).next().expect("a shell");
            let status = std::process::Command::new(shell)
                .arg("-n")
                .arg(&path)
                .status();
            assert!(
                status.is_ok_and(|status| status.success()),
                "{}",
                path.display()
            );
        }
        assert_eq!(count, 4);
    }
}
