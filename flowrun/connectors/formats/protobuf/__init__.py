"""Protocol Buffers: messages of a type that a descriptor file, or a module that protoc made, describes."""
