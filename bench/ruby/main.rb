# frozen_string_literal: true

# Measures the gem beside ruby-redis, in alternating blocks against one server; prints one table. See bench/README.md.

require "onelock"
require "redis"

URL = ENV.fetch("ONELOCK_URL")
QUICK = ARGV.include?("--quick")
ROUNDS, CYCLES, WARM = QUICK ? [3, 50, 20] : [40, 500, 1000]
TTL = 30

# The lock that people write by hand: no fencing token, no deadline, no renewal, no wake-up, no answer to a lost reply.
UNLOCK = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"

lock = Onelock::Client.new(URL, ttl: TTL).lock("bench:ruby:ours")
scope = Onelock::Client.new(URL, ttl: TTL).lock("bench:ruby:scope")
redis = Redis.new(url: URL)
number = 0

SIDES = {
  "acquire and release" => -> { lock.acquire.release },
  "synchronize" => -> { scope.synchronize { nil } },
  "ruby-redis, SET NX PX and EVAL" => lambda {
    token = (number += 1).to_s
    redis.set("bench:ruby:bare", token, nx: true, px: TTL * 1000) or raise "not got"
    redis.eval(UNLOCK, keys: ["bench:ruby:bare"], argv: [token]) == 1 or raise "not released"
  }
}.freeze

def median(values)
  values.sort[values.size / 2]
end

# The median of a block of cycles, in microseconds.
def block(cycle, cycles)
  median(Array.new(cycles) do
    begun = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    cycle.call
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - begun
  end) / 1000.0
end

SIDES.each_value { |cycle| block(cycle, WARM) }
times = SIDES.transform_values { [] }
ROUNDS.times { SIDES.each { |name, cycle| times[name] << block(cycle, CYCLES) } }

bare = times.fetch("ruby-redis, SET NX PX and EVAL")
puts "| side | p50, us | / ruby-redis (quartiles) |", "|---|---|---|"
times.each do |name, values|
  ratios = values.zip(bare).map { |ours, theirs| ours / theirs }.sort
  low, high = ratios[ratios.size / 4], ratios[ratios.size * 3 / 4]
  puts format("| %s | %.1f | %.2f (%.2f to %.2f) |", name, median(values), median(ratios), low, high)
end
