# frozen_string_literal: true

require_relative "helper"

# What ends a wait from outside, and leaves nothing held.
class TestInterrupts < OnelockTest
  class Stop < StandardError
  end

  def setup
    @client = connect
    @name = unused
    @lock = @client.lock(@name)
    # from now on the calling thread asks first
    @lock.synchronize { nil }
    @lock.synchronize { nil }
  end

  def waiting(lock = @lock, &ends)
    holder = connect.lock(@name).acquire
    thread = Thread.new do
      Thread.current.report_on_exception = false
      ends ? ends.call : lock.acquire
    end
    eventually("it waits") { @client.stats.waiting == 1 }
    [holder, thread]
  end

  def assert_ended(holder)
    assert_nothing_left(@client)
    assert_predicate holder, :held?
    holder.release
    refute redis.exists?(@name)
    @lock.synchronize(wait: LONG) { nil }
  end

  def test_timeout
    holder, thread = waiting { Timeout.timeout(0.2) { @lock.acquire } }
    assert_raises(Timeout::Error) { thread.value }
    assert_ended(holder)
    assert_equal 1, @client.stats.cancelled
  end

  def test_raise
    holder, thread = waiting
    thread.raise(Stop)
    assert_raises(Stop) { thread.value }
    assert_ended(holder)
  end

  def test_kill
    holder, thread = waiting { @lock.synchronize { flunk } }
    thread.kill
    assert_nil thread.value
    assert_ended(holder)
  end

  def test_cancel
    cancel = Onelock::Cancel.new
    holder, thread = waiting { @lock.acquire(cancel: cancel) }
    refute_predicate cancel, :cancelled?
    cancel.cancel
    assert_raises(Onelock::LockCancelled) { thread.value }
    assert_ended(holder)
    assert_raises(Onelock::LockCancelled) { @lock.acquire(cancel: cancel) }
    assert_raises(Onelock::InvalidArgument) { @lock.acquire(cancel: 7) }
  end

  def test_other_threads_run_meanwhile
    holder, thread = waiting
    ticks = 0
    counter = Thread.new { loop { (ticks += 1) && sleep(0.001) } }
    eventually("the other thread runs") { ticks > 20 }
    counter.kill
    assert_predicate thread, :alive?
    holder.release
    assert_equal :released, thread.value.release
  end

  def test_the_block_is_interrupted_and_the_lock_released
    inside = Queue.new
    thread = Thread.new do
      Thread.current.report_on_exception = false
      @lock.synchronize { (inside << 1) && sleep }
    end
    inside.pop
    thread.raise(Stop)
    assert_raises(Stop) { thread.value }
    refute redis.exists?(@name)
    thread = Thread.new { @lock.synchronize { (inside << 1) && sleep } }
    inside.pop
    thread.kill.join
    refute redis.exists?(@name)
  end

  # One exception at some moment of acquires and releases, contended and not: nothing stays held, without a collection.
  def test_at_some_moment
    GC.disable
    random = Random.new(11)
    locks = [@lock, @lock, @client.fair_lock("#{@name}:fair"), connect.lock(@name)]
    interrupted = Array.new(150) do
      threads = locks.map do |lock|
        Thread.handle_interrupt(Stop => :never) { Thread.new { interrupted_once(lock) } }
      end
      sleep(random.rand * 0.01)
      threads.each { |thread| thread.raise(Stop) }
      threads.sum { |thread| thread.join(LONG) ? thread.value : flunk("a thread waits for ever") }
    end
    assert_equal 150 * locks.size, interrupted.sum
    assert_nothing_left(@client, @name, "#{@name}:fair")
  ensure
    GC.enable
  end

  def interrupted_once(lock)
    Thread.handle_interrupt(Stop => :immediate) do
      loop { lock.synchronize { Thread.pass } }
    end
  rescue Stop
    1
  end

  # An exception before each line that an acquire and a scope run through, one after the other.
  def test_at_every_line
    GC.disable
    # where the calling thread asks, and where it waits for the background
    [true, false].each do |prompt|
      scope = lines_before { prepare(prompt) && @lock.synchronize { nil } }
      single = lines_before { prepare(prompt) && @lock.acquire }
      assert_operator [scope, single].min, :>, 20
    end
  ensure
    GC.enable
  end

  def prepare(prompt)
    @client.instance_variable_set(:@prompt, prompt ? Process.pid : nil)
    true
  end

  # What says that the caller has the lease now runs to its end, as it does without a debugger.
  HANDED_OVER = /\.free unless (done|left)$/

  # Runs the block again and again, with an exception before the first line of the gem, the second ... until none comes.
  def lines_before
    folder = File.expand_path("../lib", __dir__)
    (1..).each do |number|
      count = 0
      trace = TracePoint.new(:line) do |point|
        next unless point.path.start_with?(folder) && Thread.current == Thread.main
        next if File.readlines(point.path)[point.lineno - 1].match?(HANDED_OVER)

        raise Stop, "#{point.path}:#{point.lineno}" if (count += 1) == number
      end
      begin
        # who has a lease releases it
        trace.enable { yield }&.release
        return number
      rescue Stop => e
        eventually("nothing is left after #{e.message}") do
          @client.stats.to_h.values_at(:held, :waiting, :cleaning).all?(&:zero?) && !redis.exists?(@name)
        end
      end
    end
  end

  # Many exceptions, of which some come while an earlier one is under way.
  def test_at_any_moment
    ended = Hash.new(0)
    workers = Array.new(3) do |number|
      other = connect
      lock = number.zero? ? other.fair_lock("#{@name}:fair") : other.lock(@name)
      # outside of the calls nothing is interrupted
      [other, Thread.handle_interrupt(Stop => :never) { Thread.new { interrupted_again_and_again(lock, ended) } }]
    end
    random = Random.new(7)
    finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 6
    while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish
      workers.each { |_, thread| thread.raise(Stop) }
      sleep(random.rand * 0.004)
    end
    workers.each do |other, thread|
      thread[:stop] = true
      # an exception between two others leaves a lease to the collector
      eventually("the worker ends") { GC.start || thread.join(0.1) }
      assert_nothing_left(other)
    end
    assert_nothing_left(@client, @name, "#{@name}:fair")
    assert_operator ended[:interrupted], :>, 50, ended.to_s
    assert_operator ended[:done], :>, 50, ended.to_s
  end

  def interrupted_again_and_again(lock, ended)
    until Thread.current[:stop]
      begin
        Thread.handle_interrupt(Stop => :immediate) do
          lock.synchronize { Thread.pass }
          lease = lock.try_acquire and lease.release
        end
        ended[:done] += 1
      rescue Stop
        ended[:interrupted] += 1
      end
    end
  end

  # The calling thread asks a server that has just stopped: it is waited for within the limits of a request, and from then on not
  # asked by that thread. What the server carries out later is undone.
  def test_a_server_that_stops_to_answer
    with_server do |server, url|
      client = connect(url, request_timeout: 0.3, connect_timeout: 0.3)
      lock = client.lock(@name)
      eventually("it answers promptly") { lock.synchronize { client.__send__(:prompt?) } }
      Process.kill(:STOP, server)
      2.times do
        assert_raises(Timeout::Error) { Timeout.timeout(0.5) { lock.acquire } }
        refute client.__send__(:prompt?)
      end
      assert_raises(Onelock::ServerUnavailable) { lock.acquire(wait: 0) }
      Process.kill(:CONT, server)
      assert_nothing_left(client)
      eventually("it answers again") { lock.acquire(wait: 5).release == :released rescue nil }
      assert_nil client.inspect(@name)
    end
  end

  CTRL_C = <<~'RUBY'
    require "onelock"
    client = Onelock::Client.new
    lock = client.lock(ARGV[0])
    begin
      puts "ready"
      $stdout.flush
      lock.acquire
      puts "got it"
    rescue Interrupt
      sleep 0.005 until client.stats.to_h.values_at(:held, :waiting, :cleaning).all?(&:zero?)
      puts "interrupted, #{client.stats.cancelled} cancelled"
    end
  RUBY

  def test_ctrl_c
    holder = @lock.acquire
    reader, writer = IO.pipe
    pid = spawn("ruby", "-I", File.expand_path("../lib", __dir__), "-e", CTRL_C, @name, out: writer, err: writer)
    writer.close
    Timeout.timeout(LONG) do
      assert_equal "ready\n", reader.gets
      eventually("it waits") { @client.inspect(@name).waiting == 1 }
      Process.kill(:INT, pid)
      assert_equal "interrupted, 1 cancelled\n", reader.read
      Process.wait(pid)
    end
    assert_predicate holder, :held?
    holder.release
  end

  def test_a_trap_handler_runs_while_it_waits
    seen = Queue.new
    before = trap(:USR1) { seen << 1 }
    holder = connect.lock(@name).acquire
    helper = Thread.new do
      eventually("it waits") { @client.stats.waiting == 1 }
      Process.kill(:USR1, Process.pid)
      seen.pop
      holder.release
    end
    assert_equal :released, @lock.acquire(wait: LONG).release
    helper.join
  ensure
    trap(:USR1, before || "DEFAULT")
  end
end
