# frozen_string_literal: true

# Two accounts at once, in whatever order they are named: nobody waits in a circle.
require "onelock"

client = Onelock::Client.new
accounts = { "a" => 100, "b" => 0 }
move = lambda do |from, to, amount|
  client.multi_lock("example:account:#{from}", "example:account:#{to}", wait: 30).synchronize do
    accounts[from] -= amount
    accounts[to] += amount
  end
end
[["a", "b", 30], ["b", "a", 10], ["a", "b", 5]].map { |one| Thread.new { move.call(*one) } }.each(&:join)
puts "a has #{accounts["a"]}, b has #{accounts["b"]}"
client.close
