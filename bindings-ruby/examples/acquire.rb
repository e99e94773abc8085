# frozen_string_literal: true

# The lock around a piece of work.
require "onelock"

client = Onelock::Client.new
client.lock("example:orders:42", wait: 5).synchronize do |lease|
  puts "the order is ours, fencing token #{lease.fencing_token}"
end
client.close
