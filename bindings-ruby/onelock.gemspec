# frozen_string_literal: true

require_relative "lib/onelock/version"

Gem::Specification.new do |spec|
  spec.name = "onelock"
  spec.version = Onelock::VERSION
  spec.summary = "A distributed lock on Redis and Valkey"
  spec.description = "Mutual exclusion between processes and machines: fencing tokens, renewal, loss detection, waiting without polling."
  spec.authors = ["The onelock developers"]
  spec.licenses = %w[MIT Apache-2.0]
  spec.required_ruby_version = ">= 3.1"
  # it has the native library of one platform in it; `tools/ruby/dist.sh` builds it
  spec.platform = Gem::Platform.local
  spec.files = Dir["lib/**/*.{rb,so}", "examples/*.rb", "README.md", "LICENSE-*", "THIRD-PARTY-NOTICES.txt"]
  spec.add_dependency "ffi", ">= 1.15", "< 2"
  spec.metadata = { "rubygems_mfa_required" => "true" }
end
