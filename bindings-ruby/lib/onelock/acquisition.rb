# frozen_string_literal: true

module Onelock
  # One acquire, from the call to the lease.
  #
  # It waits for a file descriptor, as Ruby waits for a socket: other threads and fibers run, and Ctrl-C, `Thread#raise`,
  # `Thread#kill` and `Timeout.timeout` end it at once. A server that answers promptly is asked by the calling thread first,
  # without any switch between threads.
  #
  # The lease is there before the library writes to it, so an exception between any two steps finds it and ends what was begun.
  class Acquisition
    # A server that answers within so many seconds is asked by the calling thread.
    PROMPT = 0.05

    # Without a client the calling thread does not ask.
    def initialize(client, handle, wait_ms, cancel)
      @client = client
      @handle = handle
      @wait_ms = wait_ms
      @cancel = cancel
    end

    # Writes to the slot of a lease, or raises.
    def take(slot)
      @started = now
      return if prompt? && ask(slot)

      wait(slot)
      # how long it took to wait for a holder says nothing about the server
      answered(true) if now - @started < PROMPT
    end

    private

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    # Whether this thread may be kept for the time of a round trip.
    def prompt?
      @client&.__send__(:prompt?) && !@cancel&.cancelled? && !Fiber.current_scheduler
    end

    def answered(promptly)
      @client&.__send__(:answered, promptly)
    end

    # One try by this thread. False when the lock is held.
    def ask(slot)
      begin
        error = Native.found(:lock_try_acquire, @handle, slot.place)
      ensure
        # also when an exception from outside has waited for the answer
        answered(false) if now - @started >= PROMPT
      end
      return true if error.nil?

      refused(error)
      false
    end

    # What a try found: the end, or a reason to wait.
    def refused(error)
      passed = now - @started
      case error
      when LockBusy
        raise error if @wait_ms.zero?

        @client.__send__(:tried)
      when ServerUnavailable, NoQuorum
        answered(false)
        raise error if @wait_ms.zero?
      else raise error
      end
      @wait_ms = [@wait_ms - (passed * 1000).to_i, 1].max if @wait_ms.positive?
    end

    # In the background, and this thread waits for the end of that.
    def wait(slot)
      Native.call(:lock_acquire_start, @handle, @wait_ms, slot.acquisition_place)
      fd = Native.result(:acquisition_fd, :int, slot.acquisition)
      ended = IO.for_fd(fd, autoclose: false)
      if @cancel
        @cancel.__send__(:during, slot.acquisition) { ended.wait_readable }
      else
        ended.wait_readable
      end
      Native.call(:acquisition_finish, slot.acquisition, slot.place)
    ensure
      slot.end_acquisition
    end
  end
  private_constant :Acquisition
end
