"""The interfaces of other lock libraries on top of this one, so that a program can come over by changing an import."""
