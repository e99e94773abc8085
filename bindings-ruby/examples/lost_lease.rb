# frozen_string_literal: true

# Work that stops when its lease is lost; here an operator ends the hold in the middle of it.
require "onelock"

client = Onelock::Client.new
lease = client.lock("example:report", ttl: 0.3).acquire(wait: 5)
told = Queue.new
lease.on_lost { |lost, reason| told << "#{lost.name} was lost: #{reason}" }

done = 0
while lease.held?
  done += 1
  client.force_release(lease.name) if done == 3
  sleep 0.01
end
puts told.pop
puts "stopped, and the report is not finished"
client.close
