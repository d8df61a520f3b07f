use serde_json::json;

use super::*;

/// A folder that is removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("image-{name}-{}", std::process::id()));
        remove(&path).unwrap();
        create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = remove(&self.0);
    }
}

/// An archive with layers of files; `digest` is only a name here.
fn archive(folder: &Folder, layers: &[&[(&str, &str)]], config: &serde_json::Value) -> PathBuf {
    let mut descriptors = Vec::new();
    for (number, files) in layers.iter().enumerate() {
        let content = format!("layer{number}");
        for (name, text) in *files {
            folder.write(&format!("{content}/{name}"), text);
        }
        let blob = folder.write(&format!("image/blobs/sha256/{content}"), "");
        // The second is compressed.
        let flags = if number == 1 { "-czf" } else { "-cf" };
        let from = folder.0.join(&content);
        tar(&[flags, path(&blob).unwrap(), "-C", path(&from).unwrap(), "."]).unwrap();
        descriptors.push(json!({"digest": format!("sha256:{content}")}));
    }
    let manifest = json!({"config": {"digest": "sha256:config"}, "layers": descriptors});
    folder.write("image/blobs/sha256/config", &config.to_string());
    folder.write("image/blobs/sha256/manifest", &manifest.to_string());
    let list = json!({"manifests": [
        {"digest": "sha256:other", "platform": {"architecture": "s390x", "os": "linux"}},
        {"digest": "sha256:manifest"},
    ]});
    folder.write("image/blobs/sha256/list", &list.to_string());
    let index = json!({"manifests": [
        {"digest": "sha256:list", "mediaType": "application/vnd.oci.image.index.v1+json"},
    ]});
    folder.write("image/index.json", &index.to_string());
    let file = folder.0.join("image.tar");
    let from = folder.0.join("image");
    tar(&["-cf", path(&file).unwrap(), "-C", path(&from).unwrap(), "."]).unwrap();
    file
}

#[test]
fn layers_are_unpacked_in_order_and_hide_files_of_those_below() {
    let folder = Folder::new("layers");
    let config = json!({"config": {
        "User": "65532:65533", "Env": ["A=1=2"], "Entrypoint": ["/bin/a"], "Cmd": ["-v"], "WorkingDir": "/home",
    }});
    let layers: [&[(&str, &str)]; 2] = [
        &[
            ("bin/a", "old"),
            ("bin/b", "b"),
            ("etc/x", "x"),
            ("etc/d/y", "y"),
        ],
        &[
            ("bin/a", "new"),
            ("bin/.wh.b", ""),
            ("etc/.wh..wh..opq", ""),
            ("etc/z", "z"),
        ],
    ];
    let file = archive(&folder, &layers, &config);
    let image = Image::unpack(&file, &folder.0.join("unpacked")).unwrap();
    let text = |name: &str| std::fs::read_to_string(image.root.join(name)).ok();
    assert_eq!(text("bin/a").as_deref(), Some("new"));
    assert_eq!(text("etc/z").as_deref(), Some("z"));
    for gone in ["bin/b", "etc/x", "etc/d/y", "bin/.wh.b", "etc/.wh..wh..opq"] {
        assert_eq!(text(gone), None, "{gone}");
    }
    assert_eq!(image.user, (65532, 65533));
    assert_eq!(image.env, [("A".to_owned(), "1=2".to_owned())]);
    assert_eq!(image.entrypoint, ["/bin/a"]);
    assert_eq!(image.command, ["-v"]);
    assert_eq!(image.work_dir, Some("/home".into()));
}

#[test]
fn an_image_without_configuration_runs_as_root() {
    let folder = Folder::new("bare");
    let file = archive(&folder, &[&[("a", "a")]], &json!({}));
    let image = Image::unpack(&file, &folder.0.join("unpacked")).unwrap();
    assert_eq!((image.user, image.work_dir), ((0, 0), None));
}

#[test]
fn a_named_user_is_refused() {
    let folder = Folder::new("named");
    let config = json!({"config": {"User": "nobody"}});
    let file = archive(&folder, &[&[("a", "a")]], &config);
    let error = Image::unpack(&file, &folder.0.join("unpacked")).unwrap_err();
    assert!(format!("{error:#}").contains("\"nobody\" is not a number"));
}

#[test]
fn libraries_of_a_program() {
    let line = |text| library(text).map(|path| path.display().to_string());
    assert_eq!(line("\tlinux-vdso.so.1 (0x00007ffd)"), None);
    assert_eq!(
        line("\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)").as_deref(),
        Some("/lib/x86_64-linux-gnu/libc.so.6")
    );
    assert_eq!(
        line("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)").as_deref(),
        Some("/lib64/ld-linux-x86-64.so.2")
    );
    assert_eq!(line("\tlibgone.so => not found"), None);
}

#[test]
fn an_image_of_a_program_has_its_loader() {
    let folder = Folder::new("program");
    let shell = Path::new("/bin/sh");
    let image = Image::of_program(shell, &folder.0.join("image")).unwrap();
    assert!(image.root.join("program").is_file());
    for library in libraries(&shell.canonicalize().unwrap()).unwrap() {
        assert!(
            image
                .root
                .join(library.strip_prefix("/").unwrap())
                .is_file()
        );
    }
}
