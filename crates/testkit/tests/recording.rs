//! A recording that is written and read again has the same messages.
//!
//! Recordings are kept in the repository, so what the writer loses would be lost for good.

use crowfly_testkit::recording::{Event, Message, read, write};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use envoy_types::pb::google::{protobuf::Any, rpc};

#[test]
fn what_is_written_is_read_again() {
    let request = DeltaDiscoveryRequest {
        type_url: "type.googleapis.com/x.Y".to_owned(),
        resource_names_subscribe: vec!["a".to_owned()],
        resource_names_unsubscribe: vec!["b".to_owned()],
        initial_resource_versions: [("c".to_owned(), "1".to_owned())].into(),
        response_nonce: "7".to_owned(),
        error_detail: Some(rpc::Status {
            code: 3,
            message: "no".to_owned(),
            ..rpc::Status::default()
        }),
        ..DeltaDiscoveryRequest::default()
    };
    let response = DeltaDiscoveryResponse {
        system_version_info: "v".to_owned(),
        resources: vec![Resource {
            name: "a".to_owned(),
            version: "2".to_owned(),
            resource: Some(Any {
                type_url: "type.googleapis.com/x.Y".to_owned(),
                value: vec![0, 15, 16, 255],
            }),
            ..Resource::default()
        }],
        type_url: "type.googleapis.com/x.Y".to_owned(),
        removed_resources: vec!["d".to_owned()],
        nonce: "8".to_owned(),
        ..DeltaDiscoveryResponse::default()
    };
    let events = [
        Message::Request(Box::new(request)),
        Message::Response(response),
    ];
    let events = events.map(|message| Event { stream: 1, message });
    let text = write(&events);
    assert_eq!(text.lines().count(), 2);
    assert_eq!(read(&text), events);
}
