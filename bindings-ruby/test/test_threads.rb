# frozen_string_literal: true

require_relative "helper"

# Many threads and fibers, and programs in Python beside them.
class TestThreads < OnelockTest
  def test_threads_of_one_client_take_turns
    client = connect
    lock = client.lock(unused)
    inside = most = count = 0
    threads = Array.new(12) do
      Thread.new do
        20.times do
          lock.synchronize(wait: LONG) do
            most = [most, inside += 1].max
            Thread.pass
            count += 1
            inside -= 1
          end
        end
      end
    end
    threads.each(&:join)
    assert_equal [1, 240], [most, count]
    assert_nothing_left(client, lock.name)
  end

  # The smallest scheduler that can wait for a descriptor, as `async` has one.
  class Scheduler
    def initialize
      @waiting = {}
      @ready = []
    end

    def io_wait(io, events, timeout)
      @waiting[io] = Fiber.current
      Fiber.yield
      events
    end

    def kernel_sleep(*)
      block(nil)
    end

    def block(*)
      @ready << Fiber.current
      Fiber.yield
    end

    def unblock(_blocker, fiber)
      @ready << fiber
    end

    def fiber(&block)
      Fiber.new(blocking: false, &block).tap(&:resume)
    end

    def close
      until @waiting.empty? && @ready.empty?
        @ready.shift(@ready.size).each(&:resume)
        ready, = IO.select(@waiting.keys, nil, nil, 0.01) unless @waiting.empty?
        # one that is closed may be told once more
        ready&.each { |io| @waiting.delete(io)&.resume }
      end
    end
  end

  def test_fibers_of_one_thread_take_turns
    client = connect
    lock = client.reentrant_lock(unused)
    inside = most = count = 0
    Thread.new do
      Fiber.set_scheduler(Scheduler.new)
      8.times do
        Fiber.schedule do
          5.times do
            lock.synchronize(wait: LONG) do
              most = [most, inside += 1].max
              sleep 0.001
              count += 1
              inside -= 1
            end
          end
        end
      end
    end.join
    assert_equal [1, 40], [most, count]
    assert_nothing_left(client, lock.name)
  end

  RUBY_PROGRAM = <<~'RUBY'
    require "onelock"
    path, name, turns = ARGV
    client = Onelock::Client.new
    turns.to_i.times do
      client.public_send(ENV.fetch("KIND"), name).synchronize(wait: 60) { File.write(path, (File.read(path).to_i + 1).to_s) }
    end
  RUBY

  PYTHON_PROGRAM = <<~PYTHON
    import os, sys
    from onelock import Client
    path, name, turns = sys.argv[1:]
    with Client() as client:
        for _ in range(int(turns)):
            with getattr(client, os.environ["KIND"])(name, timeout=60):
                with open(path) as file:
                    number = int(file.read())
                with open(path, "w") as file:
                    file.write(str(number + 1))
  PYTHON

  # What a lost turn would show: two processes that read the same number.
  def test_processes_in_ruby_and_python_take_turns
    python = ENV.fetch("ONELOCK_TEST_PYTHON")
    %w[lock fair_lock reentrant_lock].each do |kind|
      Dir.mktmpdir do |folder|
        path, name, turns = "#{folder}/count", unused, "60"
        File.write(path, "0")
        programs = [
          ["ruby", "-I", File.expand_path("../lib", __dir__), "-e", RUBY_PROGRAM], [python, "-c", PYTHON_PROGRAM]
        ] * 2
        pids = programs.map { |program| spawn({ "KIND" => kind }, *program, path, name, turns) }
        results = Timeout.timeout(LONG * 2) { pids.map { |pid| Process.wait2(pid).last } }
        assert results.all?(&:success?), results.inspect
        assert_equal "240", File.read(path), kind
      end
    end
  end
end
