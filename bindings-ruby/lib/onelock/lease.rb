# frozen_string_literal: true

require "io/wait"

module Onelock
  # One granted hold of a lock, from `Lock#acquire` or `Lock#synchronize`. Any thread may use and release it.
  #
  # It is renewed in the background until it is released or lost. `held?` is always correct; `on_lost` may come late. A lease
  # that is dropped without a release is released when Ruby collects it, which may take long, with a warning under `ruby -w`.
  class Lease
    NEVER = { Object => :never }.freeze
    private_constant :NEVER

    # What the library has for a lease, freed once. It knows nothing of the lease, so that this can be collected.
    class Slot
      SIZE = FFI::Pointer.size

      def initialize
        @memory = FFI::MemoryPointer.new(:pointer, 2)
      end

      # Where the library writes the lease.
      def place
        @memory
      end

      def lease
        @memory.get_pointer(0)
      end

      # An acquire that is under way; NULL for none.
      def acquisition_place
        @memory + SIZE
      end

      def acquisition
        @memory.get_pointer(SIZE)
      end

      def end_acquisition
        pending = acquisition
        return if pending.null?

        # cancels it if it has not ended, and releases what was granted and not taken
        Native.acquisition_free(pending)
        # Only now: after each step an exception may come, and who comes next must find it. A second free does nothing.
        @memory.put_pointer(SIZE, nil)
      end

      # The number of its callbacks, and the process that has them.
      attr_reader :number, :process

      def number=(number)
        @number = number
        @process = Process.pid
      end

      # Ends an acquire, and frees the lease; what is still held is released in the background.
      def free(later: false)
        end_acquisition
        pointer = lease
        return if pointer.null?

        # who frees a lease with callbacks waits for one that runs, which waits for Ruby; in a child none runs
        if number.nil? || process != Process.pid
          Native.lease_free(pointer)
        elsif later
          Events.free(pointer)
        else
          Native.lease_free_waiting(pointer)
        end
        Events.forget(number) if number
        @memory.put_pointer(0, nil)
      end

      # Called when the lease was collected, and at the end of the program, which may well hold it until then. It is called once, in
      # any thread, whose exceptions wait until it is done.
      def call(_)
        Thread.handle_interrupt(NEVER) do
          warn_unreleased if $VERBOSE && !Slot.ending && !lease.null? && Native.lease_is_held(lease)
        ensure
          free(later: true)
        end
      end

      class << self
        attr_accessor :ending
      end
      at_exit { self.ending = true }

      private

      def warn_unreleased
        # rubocop:disable Style/StderrPuts -- `warn` may be the program's own, and raise
        $stderr.puts("onelock: the lease of #{Lease.name_of(lease).inspect} was neither released nor lost when it was dropped; " \
                     "use synchronize, or call release")
        # rubocop:enable Style/StderrPuts
      rescue StandardError
        # standard error is closed: there is nobody to tell
      end
    end
    private_constant :Slot

    class << self
      private :new

      # The name of a lease of the library.
      def name_of(pointer)
        text = FFI::MemoryPointer.new(:pointer)
        length = FFI::MemoryPointer.new(:size_t)
        Native.call(:lease_name, pointer, text, length)
        Arguments.told(text.read_pointer.read_bytes(length.get(:size_t, 0)))
      end

      private

      # A lease that holds nothing yet, for the library to write to. From here on nothing that is granted can get lost.
      def empty
        new
      end
    end

    def initialize
      @slot = Slot.new
      @listening = Mutex.new
      @listeners = { lost: [], jeopardy: [] }
      @registered = {}
      ObjectSpace.define_finalizer(self, @slot)
    end

    # Whether this holds the lock now: not released, not lost, same process, before the deadline. No I/O.
    def held?
      Native.lease_is_held(handle)
    end

    # Whether it was lost: it ended, and was not released. No I/O.
    def lost?
      !loss.nil?
    end

    # Why the lease was lost: `:expired`, `:taken`, `:max_hold`, `:clock_anomaly` or `:closed`; nil while it is held, and after a
    # release. No I/O.
    #
    # A release that finds the hold gone before its deadline counts as a loss.
    def loss
      Native.word(:loss_name, Native.lease_loss(handle))
    end

    # The fencing token of this hold, an Integer below 2^53, for the protected resource; nil when fencing is off, and for a lease
    # of several locks. It grows with every grant of the name.
    def fencing_token
      token = Native.lease_fencing_token(handle)
      token.zero? ? nil : token
    end

    # The fencing token of one of the locks that a lease of several holds, by its name; of a lease of one lock, its own. nil when
    # fencing is off, and for a name that it does not hold.
    def fencing_token_of(name)
      name = Arguments.name(name)
      token = Native.lease_fencing_token_of(handle, name, name.bytesize)
      token.zero? ? nil : token
    end

    # The grade of the fencing token, from the server's configuration: `:none`, `:best_effort`, `:clock_bounded` or `:strict`.
    def fencing_grade
      Native.word(:grade_name, Native.lease_fencing_grade(handle))
    end

    # Seconds until the deadline, without further renewals; 0 when it is not held. No I/O.
    def remaining
      Native.lease_remaining_ms(handle) / 1000.0
    end

    # The hold count of the owner; 1 for a lock that is not reentrant, 0 when it is not held.
    def hold_count
      Native.lease_hold_count(handle)
    end

    # The kind of lock, such as `:lock` or `:read_lock`.
    def kind
      Native.word(:kind_name, Native.lease_kind(handle))
    end

    # The name of the lock; of several locks all names, with `, ` between them.
    def name
      Lease.name_of(handle)
    end

    # Releases the lock, wakes a waiter, and returns what the server found: `:released`, `:already_expired` (it had ended before),
    # `:already_released` (this was released or detached before; nothing was sent) or `:unconfirmed` (not held any more, but no
    # server confirmed it in time; it is retried in the background). One round trip; it may be called again.
    #
    # Returns within `request_timeout`. If a reentrant lock was entered more than once, this releases one entry. Raises only
    # LeaseForked, in a forked child.
    def release
      outcome = Native.place
      # the error of a forked child is asked for again, with a place for it: nothing is sent either time
      Native.call(:lease_release, handle, outcome) unless Native.lease_release(handle, outcome, nil).zero?
      found = outcome.read_uint32
      Native.put_back(outcome)
      OUTCOMES.fetch(found)
    end

    OUTCOMES = (1..4).to_h { |number| [number, Native.word(:release_name, number)] }.freeze
    private_constant :OUTCOMES

    # Sets the end of the lease to `ttl` seconds from now, unless it ends later already. It never adds or shortens.
    #
    # From 0.01 s to one year. Automatic renewal continues with the longer of the two lengths. One round trip. Raises
    # InvalidArgument before any I/O; LockLost or LockNotHeld when the lease is not held; ServerUnavailable when no server
    # answered (the deadline is unchanged).
    def extend(ttl)
      Native.call(:lease_extend, handle, Arguments.milliseconds(ttl, "ttl"))
      nil
    end

    # Makes a write lease a read lease, in place: at no moment could another writer enter. One round trip.
    #
    # Other readers may enter from now on, and `fencing_token` is a new one. A read lease stays what it is. Raises
    # InvalidArgument for another kind of lock; LockBusy while its owner enters or leaves it; LockLost or LockNotHeld when the
    # lease is not held; ServerUnavailable when no server answered: it counts as a read lease then, and a further call asks again.
    def downgrade
      Native.call(:lease_downgrade, handle)
      nil
    end

    # Hands the hold to another process: this holds nothing from now on, and returns a text, the proof, for `Lock#attach`. It is
    # not renewed meanwhile, so attach within the ttl. Of several locks it is one proof a line; attach with each to its lock.
    def detach
      proof = Native.object(:lease_detach, :proof_free, handle)
      Native.text(Native.proof_text(proof))
    end

    # Waits for the loss of the lease, at most `limit` seconds (nil: without limit; then it never returns if the lease is
    # released). Returns the reason, or nil when it has not been lost by then.
    def wait_lost(limit = nil)
      limit = Arguments.milliseconds(limit, "limit") / 1000.0 unless limit.nil?
      fd = Native.result(:lease_lost_fd, :int, handle)
      IO.for_fd(fd, autoclose: false).wait_readable(limit) unless lost?
      loss
    end

    # Calls the block with this lease and the reason when it is lost, once; at once if it is lost already. Further blocks are
    # called as well. Not called when it is released or dropped.
    #
    # Blocks run on one thread, one after the other, so keep them short. What they raise goes to standard error.
    def on_lost(&block)
      listen(:lost, :lease_on_lost, Events::LOST, block)
    end

    # Calls the block with this lease whenever a renewal was missed while the lease is still valid. Otherwise as `on_lost`.
    def on_jeopardy(&block)
      listen(:jeopardy, :lease_on_jeopardy, Events::JEOPARDY, block)
    end

    # Without secrets.
    def inspect
      "#<#{self.class.name} #{name.inspect} #{held? ? "held" : loss || "not held"}>"
    end

    private

    def handle
      @slot.lease
    end

    attr_reader :slot

    # The exception of the loss, if it was lost.
    def lost_error
      return nil if Native.lease_loss(handle).zero?

      # not raised here, where it would have what is under way as its cause
      Native.found(:lease_check_loss, handle)&.tap { |error| error.reason = loss }
    end

    def listen(what, function, closure, block)
      raise ArgumentError, "no block given" unless block

      # a loss is told to the blocks that are there, and later ones find it
      @listening.synchronize do
        if what == :lost && @told
          Events.push(:call, self, block, @told)
        else
          @listeners[what] << block
          register(what, function, closure) unless @registered[what]
        end
      end
      nil
    end

    # Done again when an exception came before its end: it takes the place of what was registered.
    def register(what, function, closure)
      @slot.number ||= Events.register(self)
      Events.run
      Native.call(function, handle, closure, FFI::Pointer.new(@slot.number))
      @registered[what] = true
    end

    # Called by the thread for events.
    def tell(what, reason = nil)
      # what was under way at a fork belongs to the parent
      return unless @slot.process == Process.pid

      blocks = @listening.synchronize do
        next [] if what == :lost && @told

        @told = reason if what == :lost
        @listeners[what].dup
      end
      blocks.each { |block| call(block, what, *reason) }
    end

    # The same for a block that was set after that.
    def tell_late(block, reason)
      call(block, :lost, reason)
    end

    def call(block, what, *reason)
      block.call(self, *reason)
    rescue Exception => e # rubocop:disable Lint/RescueException
      Events.failed("a callback for a #{what == :lost ? "loss" : "missed renewal"}", e)
    end

    # Ends a scope: releases, and returns the error of a loss. An exception from outside does not keep it from that.
    def leave
      begin
        Thread.handle_interrupt(NEVER) { release }
      rescue LeaseForked
        # a forked child leaves the scope of its parent: it holds nothing
        return nil
      end
      # also a loss that only the release detected
      lost_error
    end
  end
end
