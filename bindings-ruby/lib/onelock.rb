# frozen_string_literal: true

# A distributed lock on Redis and Valkey: mutual exclusion between processes and machines.
#
#   require "onelock"
#
#   client = Onelock::Client.new("redis://localhost")
#   client.lock("orders:42", wait: 5).synchronize do |lease|
#     charge(order, fence: lease.fencing_token)
#   end
#
# All durations are seconds, as in `Timeout` and `sleep`.
module Onelock
end

require_relative "onelock/version"
require_relative "onelock/errors"
require_relative "onelock/native"
require_relative "onelock/arguments"
require_relative "onelock/events"
require_relative "onelock/credentials"
require_relative "onelock/options"
require_relative "onelock/owner"
require_relative "onelock/cancel"
require_relative "onelock/lease"
require_relative "onelock/acquisition"
require_relative "onelock/lock"
require_relative "onelock/semaphore"
require_relative "onelock/multi_lock"
require_relative "onelock/rw_lock"
require_relative "onelock/inspection"
require_relative "onelock/diagnosis"
require_relative "onelock/stats"
require_relative "onelock/fence_gate"
require_relative "onelock/client"
