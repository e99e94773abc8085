# frozen_string_literal: true

module Onelock
  # One thread that calls what the program has set for losses and missed renewals, one after the other, and one that frees leases
  # with callbacks for finalizers.
  #
  # The library calls from threads of its own; what it calls only puts a line into a queue, so that none of them waits for the
  # program.
  module Events
    # A thread with a queue. It is started when it is first needed, and anew in a forked child.
    class Worker
      def initialize(name, &serve)
        @name = name
        @serve = serve
        @start = Mutex.new
        @queue = Queue.new
        @process = Process.pid
      end

      # Has this done by the thread. May be called in any thread, in a finalizer and in a trap handler.
      def push(*event)
        run
        @queue << event
      end

      def run
        return if @process == Process.pid && @thread&.alive?

        @start.synchronize do
          unless @process == Process.pid
            # what was under way belongs to the parent
            @process = Process.pid
            @queue = Queue.new
          end
          @thread = start(@queue) unless @thread&.alive?
        end
      rescue ThreadError
        # in a trap handler; the next event starts it
      end

      private

      def start(queue)
        serve = @serve
        thread = Thread.new do
          # It has the mask of who starts it, which may refuse everything; the end of the program must end it, and nothing else.
          Thread.handle_interrupt(Object => :immediate, StandardError => :never) { serve.call(*queue.pop) while true }
        end
        thread.name = @name
        thread.report_on_exception = true
        thread
      end
    end
    private_constant :Worker

    @registering = Mutex.new
    @leases = {}
    @numbers = 0
    @calls = Worker.new("onelock events") { |what, *arguments| serve(what, *arguments) }
    # a callback of the program may wait for a lock that such a lease holds
    @frees = Worker.new("onelock frees") { |pointer| Native.lease_free_waiting(pointer) }

    class << self
      # Listens to a lease, which is not kept from being collected. Returns its number.
      def register(lease)
        @registering.synchronize do
          @numbers += 1
          @leases[@numbers] = WeakRef.new(lease)
          @numbers
        end
      end

      def forget(number)
        @leases.delete(number)
      end

      # Has this done by the thread for events.
      def push(*event)
        @calls.push(*event)
      end

      # Frees a lease with callbacks, in a moment.
      def free(pointer)
        @frees.push(pointer)
      end

      def run
        @calls.run
      end

      # Tells that something of the program's raised; that harms nothing else.
      def failed(what, error)
        # rubocop:disable Style/StderrPuts -- `warn` may be the program's own, and raise
        $stderr.puts("onelock: #{what} raised #{error.class}: #{error.message}")
        # rubocop:enable Style/StderrPuts
      rescue StandardError
        # standard error is closed: there is nobody to tell
      end

      private

      def serve(what, *arguments)
        case what
        when :lost, :jeopardy
          lease = @leases[arguments.first]&.__getobj__
          lease&.__send__(:tell, what, *arguments.drop(1))
        when :call
          lease, block, reason = arguments
          lease.__send__(:tell_late, block, reason)
        end
      rescue WeakRef::RefError
        # nobody has the lease any more: it is released
      rescue Exception => e # rubocop:disable Lint/RescueException
        failed("an event", e)
      end
    end

    # In a child FFI has nobody who takes calls from threads of the library, until a further function is made.
    module AfterFork
      def _fork
        super.tap { |pid| FFI::Function.new(:void, []) { nil } if pid.zero? }
      end
    end
    Process.singleton_class.prepend(AfterFork)

    # Closures that the library may call as long as the process lives; they are never freed.
    LOST = FFI::Function.new(:void, %i[pointer uint32 pointer]) do |_lease, reason, number|
      push(:lost, number.address, Native.word(:loss_name, reason))
    end
    JEOPARDY = FFI::Function.new(:void, %i[pointer pointer]) { |_lease, number| push(:jeopardy, number.address) }
    [LOST, JEOPARDY].each { |function| function.autorelease = false }
  end
  private_constant :Events
end

require "weakref"
