# frozen_string_literal: true

module Onelock
  # The version of this gem. It needs the C library of the same interface; see `Onelock.native_version`.
  VERSION = "0.1.0"
end
