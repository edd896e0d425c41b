//! Configuration files that change while they are served. A change that is bad or half-written must
//! leave the last good configuration in force.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod support;

use std::path::Path;

use crowfly_control::{ControlPlane, Options, Ports, Reload, StartError};
use support::{ENDPOINTS, any_port, get_json, service, soon};
use tempfile::TempDir;
use tokio::sync::watch;

async fn start(config: &Path) -> ControlPlane {
    try_start(config).await.unwrap()
}

async fn try_start(config: &Path) -> Result<ControlPlane, StartError> {
    ControlPlane::start(Options::new(
        config,
        Ports::new(any_port()).admin(any_port()),
    ))
    .await
}

async fn next(reloads: &mut watch::Receiver<Reload>) -> Result<String, String> {
    soon(reloads.changed()).await.unwrap();
    let reload = reloads.borrow_and_update().clone();
    reload
        .result
        .map(|changes| changes.to_string())
        .map_err(|errors| errors.to_string())
}

fn names(plane: &ControlPlane) -> Vec<String> {
    let snapshot = plane.snapshot();
    let of = snapshot.of(ENDPOINTS);
    of.map_or_else(Vec::new, |of| {
        of.resources().keys().map(ToString::to_string).collect()
    })
}

/// Puts a whole file in the place of another.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, file).unwrap();
}

fn dir_with(file: &str, text: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(file), text).unwrap();
    dir
}

#[tokio::test]
async fn a_file_that_is_written_again_is_read_again() {
    let dir = dir_with("control.yaml", &service("a", 1));
    let file = dir.path().join("control.yaml");
    let plane = start(&file).await;
    assert_eq!(names(&plane), ["a"]);

    let mut reloads = plane.reloads();
    std::fs::write(&file, service("b", 1)).unwrap();
    // It may be seen while it is half written.
    while names(&plane) != ["b"] {
        next(&mut reloads).await.ok();
    }
}

/// Editors and configuration management replace a file by a rename. The test does it twice, because
/// a watch on the file itself would see only the first time.
#[tokio::test]
async fn a_file_that_is_replaced_by_rename_is_read_again() {
    let dir = dir_with("control.yaml", &service("a", 1));
    let file = dir.path().join("control.yaml");
    let plane = start(&file).await;
    let mut reloads = plane.reloads();
    for name in ["b", "c"] {
        replace(&file, &service(name, 1));
        next(&mut reloads).await.unwrap();
        assert_eq!(names(&plane), [name]);
    }
}

/// Kubernetes replaces the link `..data`, and touches nothing else.
#[cfg(unix)]
#[tokio::test]
async fn a_config_map_is_followed() {
    use std::os::unix::fs::symlink;

    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let version = |version: &str, name: &str| {
        std::fs::create_dir(root.join(version)).unwrap();
        std::fs::write(root.join(version).join("control.yaml"), service(name, 1)).unwrap();
        symlink(version, root.join("..data_tmp")).unwrap();
        std::fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    };
    version("..v1", "a");
    symlink("..data/control.yaml", root.join("control.yaml")).unwrap();

    let by_file = start(&root.join("control.yaml")).await;
    let by_dir = start(root).await;
    let mut reloads = [by_file.reloads(), by_dir.reloads()];
    for (v, name) in [("..v2", "b"), ("..v3", "c")] {
        version(v, name);
        for (plane, reloads) in [&by_file, &by_dir].into_iter().zip(&mut reloads) {
            next(reloads).await.unwrap();
            assert_eq!(names(plane), [name]);
        }
    }
}

#[tokio::test]
async fn files_of_a_directory_come_and_go() {
    let dir = dir_with("a.yaml", &service("a", 1));
    std::fs::write(dir.path().join("notes.txt"), "not yaml: [").unwrap();
    std::fs::write(dir.path().join(".hidden.yaml"), "not yaml: [").unwrap();
    let plane = start(dir.path()).await;
    let mut reloads = plane.reloads();
    assert_eq!(names(&plane), ["a"]);

    let b = dir.path().join("b.json");
    replace(&b, r#"{"services": [{"name": "b"}]}"#);
    next(&mut reloads).await.unwrap();
    assert_eq!(names(&plane), ["a", "b"]);

    std::fs::remove_file(dir.path().join("a.yaml")).unwrap();
    next(&mut reloads).await.unwrap();
    assert_eq!(names(&plane), ["b"]);
}

#[tokio::test]
async fn a_bad_file_leaves_the_last_good_snapshot_serving() {
    let dir = dir_with("control.yaml", &service("a", 1));
    let file = dir.path().join("control.yaml");
    let plane = start(&file).await;
    let before = plane.snapshot();
    let mut reloads = plane.reloads();

    replace(&file, "services:\n- { name: a, weight: 3 }\n");
    let error = next(&mut reloads).await.unwrap_err();
    let expected = "control.yaml:2:14: services[0].weight: unknown field, expected one of name, ";
    assert!(error.contains(expected), "{error}");
    assert_eq!(plane.snapshot(), before);
    let shown = get_json(plane.admin_addr().unwrap(), "/snapshot").await;
    assert_eq!(shown["last_reload"]["errors"][0], error);

    std::fs::remove_file(&file).unwrap();
    let error = next(&mut reloads).await.unwrap_err();
    assert!(
        error.contains("control.yaml: cannot be read: No such file"),
        "{error}"
    );
    assert_eq!(plane.snapshot(), before);

    replace(&file, &service("b", 1));
    next(&mut reloads).await.unwrap();
    assert_eq!(names(&plane), ["b"]);
}

/// `generator > control.yaml` truncates first and writes later. The fleet stays as it is if the
/// file is read in between.
#[tokio::test]
async fn a_file_that_becomes_empty_deletes_nothing() {
    let dir = dir_with("control.yaml", &service("a", 1));
    let file = dir.path().join("control.yaml");
    let plane = start(&file).await;
    let mut reloads = plane.reloads();
    for text in ["", "# nothing\n", "services:\n"] {
        replace(&file, text);
        let error = next(&mut reloads).await.unwrap_err();
        assert!(error.contains("expected"), "{error}");
        assert_eq!(names(&plane), ["a"], "{text:?}");
    }
    replace(&file, &service("b", 1));
    assert_eq!(
        next(&mut reloads).await.unwrap(),
        "added 1: b (cluster, endpoints, listener, route configuration), changed 0, \
         removed 1: a (cluster, endpoints, listener, route configuration)"
    );
}

/// A directory may be empty because a volume is not mounted yet.
#[tokio::test]
async fn a_directory_that_becomes_empty_deletes_nothing() {
    let dir = dir_with("a.yaml", &service("a", 1));
    let plane = start(dir.path()).await;
    let mut reloads = plane.reloads();
    std::fs::remove_file(dir.path().join("a.yaml")).unwrap();
    let error = next(&mut reloads).await.unwrap_err();
    assert!(error.contains("expected *.yaml"), "{error}");
    assert_eq!(names(&plane), ["a"]);
    assert!(try_start(dir.path()).await.is_err());
}

#[tokio::test]
async fn empty_lists_that_are_written_out_are_applied_and_counted() {
    let dir = dir_with("control.yaml", &service("a", 1));
    let file = dir.path().join("control.yaml");
    let plane = start(&file).await;
    let mut reloads = plane.reloads();
    replace(&file, "services: [{ name: a, endpoints: [] }]");
    let told = next(&mut reloads).await.unwrap();
    let expected = "added 0, changed 1: a (endpoints), removed 0, without endpoints 1: a (had 1)";
    assert_eq!(told, expected);

    replace(&file, "services: []");
    let told = next(&mut reloads).await.unwrap();
    assert!(told.contains("removed 1: a (cluster, "), "{told}");
    assert_eq!(names(&plane), [""; 0]);
    let shown = get_json(plane.admin_addr().unwrap(), "/snapshot").await;
    assert_eq!(shown["last_reload"]["changes"], told);
}

#[tokio::test]
async fn empty_files_are_served_if_that_is_allowed() {
    let dir = dir_with("control.yaml", "");
    let options = Options {
        allow_empty: true,
        ..Options::new(dir.path().join("control.yaml"), Ports::new(any_port()))
    };
    let plane = ControlPlane::start(options).await.unwrap();
    assert_eq!(names(&plane), [""; 0]);
}

#[tokio::test]
async fn a_reload_that_was_asked_for_is_told_even_if_nothing_changed() {
    let dir = dir_with("control.yaml", &service("a", 1));
    let plane = start(&dir.path().join("control.yaml")).await;
    let mut reloads = plane.reloads();
    plane.reload();
    let told = next(&mut reloads).await.unwrap();
    assert_eq!(told, "added 0, changed 0, removed 0");
}

#[tokio::test]
async fn a_bad_start_is_an_error() {
    let dir = dir_with("control.yaml", "services: [{}]");
    for (path, expected) in [
        (
            "control.yaml",
            "control.yaml:1:12: services[0]: expected a field `name`",
        ),
        (
            "nowhere.yaml",
            "nowhere.yaml: cannot be read: No such file or directory",
        ),
    ] {
        match try_start(&dir.path().join(path)).await {
            Err(StartError::Config(errors)) => {
                assert!(errors.to_string().contains(expected), "{errors}");
            }
            other => panic!("{path}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_port_in_use_is_an_error() {
    let taken = tokio::net::TcpListener::bind(any_port()).await.unwrap();
    let dir = dir_with("control.yaml", "services: []");
    let options = Options::new(dir.path(), Ports::new(taken.local_addr().unwrap()));
    let error = ControlPlane::start(options).await.unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }), "{error}");
}

/// A raw API listener whose routes are inside, to a cluster of this type.
fn raw_of_type(kind: &str) -> String {
    let package = "type.googleapis.com/envoy.extensions.filters";
    let cluster = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    format!(
        r#"resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: web
  api_listener:
    api_listener:
      "@type": {package}.network.http_connection_manager.v3.HttpConnectionManager
      http_filters: [{{ name: r, typed_config: {{ "@type": {package}.http.router.v3.Router }} }}]
      route_config:
        virtual_hosts: [{{ domains: ["*"], routes: [{{ match: {{ prefix: "" }}, route: {{ cluster: c }} }}] }}]
- {{ "@type": {cluster}, name: c, type: {kind}, eds_cluster_config: {{ eds_config: {{ ads: {{}} }} }} }}
"#
    )
}

/// K-07: what gRPC clients would refuse does not get in, neither at the start nor by a reload, unless it is forced.
#[tokio::test]
async fn resources_that_clients_would_refuse_are_refused_at_the_door() {
    let dir = dir_with("mesh.yaml", &raw_of_type("STATIC"));
    let file = dir.path().join("mesh.yaml");
    let refused = "mesh.yaml:10:82: resources[1].type: a gRPC client refuses this cluster, which xds:///web leads to: \
                   expected EDS or LOGICAL_DNS, got STATIC";
    let Err(error) = try_start(&file).await else {
        panic!("expected an error")
    };
    assert!(error.to_string().ends_with(refused), "{error}");

    replace(&file, &raw_of_type("EDS"));
    let plane = start(&file).await;
    let good = plane.snapshot();
    let mut reloads = plane.reloads();
    replace(&file, &raw_of_type("STATIC"));
    let error = next(&mut reloads).await.unwrap_err();
    assert!(error.ends_with(refused), "{error}");
    assert_eq!(plane.snapshot(), good);
    replace(
        &file,
        &raw_of_type("EDS").replace("prefix: \"\"", "prefix: /"),
    );
    let changes = next(&mut reloads).await.unwrap();
    assert!(changes.contains("changed 1: web (listener)"), "{changes}");

    replace(&file, &raw_of_type("STATIC"));
    let forced = ControlPlane::start(Options {
        force: true,
        ..Options::new(file, Ports::new(any_port()))
    });
    assert_ne!(forced.await.unwrap().snapshot(), good);
}
