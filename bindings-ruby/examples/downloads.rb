# frozen_string_literal: true

# At most three downloads at a time, in all programs together.
require "onelock"

client = Onelock::Client.new
downloads = client.semaphore("example:downloads", 3)
mutex = Mutex.new
now = most = 0
threads = Array.new(8) do
  Thread.new do
    downloads.synchronize(wait: 30) do
      mutex.synchronize { most = [most, now += 1].max }
      sleep 0.02
      mutex.synchronize { now -= 1 }
    end
  end
end
threads.each(&:join)
puts "never more than three: #{most <= 3}"
client.close
