# frozen_string_literal: true

require_relative "helper"

# What ends a lease or an acquire, also when an exception comes between two steps of that.
class TestFrees < OnelockTest
  class Stop < StandardError
  end

  LIBRARY = File.expand_path("../lib/onelock", __dir__)

  def setup
    @client = connect
    @name = unused
    @lock = @client.lock(@name)
    GC.disable
  end

  def teardown
    GC.enable
    super
  end

  # Runs the block with an exception at the return of the C call of the gem with this number. Whether there were so many.
  def stopped_after?(number, &block)
    count = 0
    trace = TracePoint.new(:c_return) do |point|
      raise Stop if point.path.start_with?(LIBRARY) && Thread.current == Thread.main && (count += 1) == number
    end
    trace.enable(&block)
    false
  rescue Stop
    true
  end

  def slot_of(lease)
    lease.__send__(:slot)
  end

  def a_pending_acquisition
    @holder ||= connect.lock(@name).acquire
    slot = slot_of(Onelock::Lease.__send__(:empty))
    Onelock::Native.call(:lock_acquire_start, @lock.__send__(:handle), -1, slot.acquisition_place)
    eventually("it waits") { @client.stats.waiting == 1 }
    slot
  end

  def assert_no_step_loses(what)
    (1..).each do |number|
      slot = yield
      stopped = stopped_after?(number) { slot.public_send(what) }
      # what the collector does
      capture_io { slot.call(nil) }
      eventually("nothing is left after step #{number}") do
        @client.stats.to_h.values_at(:held, :waiting, :cleaning).all?(&:zero?)
      end
      return assert_operator(number, :>, 3) unless stopped
    end
  end

  def test_an_exception_in_a_free_loses_no_lease
    assert_no_step_loses(:free) { slot_of(@lock.acquire) }
    told = @client.lock(@name, on_lost: ->(*) {})
    assert_no_step_loses(:free) { slot_of(told.acquire) }
  end

  def test_an_exception_at_the_end_of_an_acquisition_does_not_lose_it
    assert_no_step_loses(:end_acquisition) { a_pending_acquisition }
    assert_no_step_loses(:free) { a_pending_acquisition }
  end

  # Runs the block with exceptions before this line of an acquisition, and before the next one that runs. Whether there was one.
  def stopped_twice?(number, &block)
    count = 0
    trace = TracePoint.new(:line) do |point|
      next unless point.path == "#{LIBRARY}/acquisition.rb" && Thread.current == Thread.main

      raise Stop if (count += 1).between?(number, number + 1)
    end
    trace.enable(&block)
    false
  rescue Stop
    true
  end

  def test_two_exceptions_in_a_row_end_the_acquisition
    [-> { @lock.synchronize { nil } }, -> { @lock.acquire.release }].each do |acquires|
      (1..).each do |number|
        # so that it waits for the background
        @client.instance_variable_set(:@prompt, nil)
        stopped = stopped_twice?(number, &acquires)
        eventually("nothing is left after line #{number}") do
          @client.stats.to_h.values_at(:held, :waiting, :cleaning).all?(&:zero?) && !redis.exists?(@name)
        end
        break assert_operator(number, :>, 8) unless stopped
      end
    end
  end

  # As the standard error of a daemon is.
  class Broken
    def puts(*)
      raise Errno::EPIPE
    end
    alias write puts
  end

  def test_a_lease_that_cannot_be_told_of_is_released
    slot = slot_of(@lock.acquire)
    before = [$stderr, $VERBOSE, slot.class.ending]
    begin
      # tests run at the end of the program
      slot.class.ending = false
      $stderr = Broken.new
      $VERBOSE = true
      slot.call(nil)
    rescue Errno::EPIPE
      # Ruby does not tell what a finalizer raises
    ensure
      $stderr, $VERBOSE, slot.class.ending = before
    end
    assert_nothing_left(@client, @name)
  end

  # A callback of the program waits for a lock whose lease with callbacks is dropped meanwhile.
  def test_a_dropped_lease_does_not_wait_for_callbacks_of_the_program
    drops = { "interrupted" => ->(lock) { interrupted_acquire(lock) },
              "collected" => ->(lock) { capture_io { slot_of(lock.acquire).call(nil) } } }
    drops.each do |how, drop|
      running, go, got = Array.new(3) { Queue.new }
      lock = @client.lock("#{@name}:#{how}", on_lost: ->(*) {})
      lost = @client.lock(@name, on_lost: lambda { |*|
        running << 1
        go.pop
        got << (lock.acquire(wait: LONG).release rescue $!)
      }).acquire
      @client.force_release(@name)
      lost.extend(30) rescue nil
      Timeout.timeout(LONG) { running.pop }
      drop.call(lock)
      go << 1
      assert_equal :released, got.pop, how
    end
  end

  # An exception after the grant, when the callbacks are set.
  def interrupted_acquire(lock)
    trace = TracePoint.new(:line) do |point|
      next unless point.path == "#{LIBRARY}/lock.rb" && Thread.current == Thread.main

      raise Stop if File.readlines(point.path)[point.lineno - 1].match?(/done = lease/)
    end
    assert_raises(Stop) { trace.enable { lock.acquire } }
  end
end
