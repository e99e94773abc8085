# frozen_string_literal: true

# A job that a timer starts on many machines at the same time, and one of them runs. `min_hold` is above what their clocks
# differ by: who comes a little later finds it taken.
require "onelock"

machines = Array.new(3) { Onelock::Client.new }
ran = machines.map do |machine|
  machine.lock("example:nightly", min_hold: 2).synchronize(wait: 0) { :ran }
rescue Onelock::LockBusy
  :left_to_another
end
puts "#{ran.count(:ran)} of #{ran.size} ran the job"
machines.each(&:close)
