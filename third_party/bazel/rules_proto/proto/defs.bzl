"""Bazel's native protobuf rules under the names that its own tools load."""

ProtoInfo = ProtoInfo
proto_lang_toolchain = native.proto_lang_toolchain
proto_library = native.proto_library
