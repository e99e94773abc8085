# frozen_string_literal: true

module Onelock
  # A lock by name, from `Client#lock`, `reentrant_lock` or `fair_lock`. It holds nothing by itself; it is cheap, and threads may
  # share one.
  #
  #   client.lock("orders:42", wait: 5).synchronize do |lease|
  #     charge(order, fence: lease.fencing_token)
  #   end
  class Lock
    # Stands for an argument that was left out, where nil has a meaning.
    DEFAULT = Object.new.freeze
    private_constant :DEFAULT

    class << self
      private :new
    end

    # The name, without the prefix.
    attr_reader :name

    # The kind of lock: `:lock`, `:reentrant_lock`, `:fair_lock`, `:read_lock`, `:write_lock` or `:semaphore`.
    attr_reader :kind

    # Locks are made by a client.
    def initialize(client, kind, name, wait: nil, owner: nil, on_lost: nil, on_jeopardy: nil, permits: nil, **options)
      @client = client
      @kind = kind
      @name = Arguments.name(name)
      @wait_ms = Arguments.wait(wait)
      @owner = checked_owner(owner)
      @on_lost = on_lost
      @on_jeopardy = on_jeopardy
      @permits = permits
      @options = options
      @made = nil
      # a wrong option is an error here, not at the first acquire
      handle
    end

    # Acquires the lock, calls the block with the lease, releases the lock, and returns what the block returned.
    #
    # `wait` is as in `acquire`. The lock is released however the block ends. An exception of the block is never replaced by a
    # problem of the release; if the lease was lost meanwhile, LockLost is its cause. If the block ends well but the lease was
    # lost, LockLost is raised.
    #
    # A block that is left by `throw`, `break` or `return` ended well; `Timeout.timeout` leaves it by `throw` in some versions of
    # Ruby, so with a lost lease LockLost may come in place of Timeout::Error.
    def synchronize(wait: DEFAULT, cancel: nil, &block)
      scope(wait, cancel: cancel, &block)
    end

    # Waits until the lock is held, at most `wait` seconds, and returns the lease. Uncontended it takes one round trip.
    #
    # `wait: nil` waits without limit, 0 is a single try that raises LockBusy. The default is the `wait` of the lock. Waiting does
    # not poll, other threads run meanwhile, and Ctrl-C, `Thread#raise`, `Thread#kill` and `Timeout.timeout` end it at once;
    # however it ends, nothing is left held. Returns within `wait` + `connect_timeout` + 2 x `request_timeout`. Another thread
    # ends it through `cancel`, a Cancel, which raises LockCancelled.
    #
    # Raises LockTimeout, LockBusy or LockCancelled (all NotAcquired); InvalidArgument before any I/O; ServerUnavailable,
    # ServerRefused, NotPermitted, AuthenticationFailed; WrongKind when the key is something else; LockLost when a lost hold would
    # be re-entered; ClientClosed.
    def acquire(wait: DEFAULT, cancel: nil)
      granted { |lease| take(lease, wait, cancel: cancel) }
    end

    # One try: nil when the lock is held. One round trip, no waiting. Otherwise as `acquire`.
    def try_acquire
      acquire(wait: 0)
    rescue LockBusy
      nil
    end

    # Takes over a hold that another process handed away with `Lease#detach`. One round trip.
    #
    # The ttl begins now; name, kind and prefix must be those of the detached lock. A proof attaches only once; the fencing token
    # stays the same (Redlock: it may be higher). Raises InvalidArgument for a text that is not a proof; LockLost when the hold
    # has ended, or the proof was used before. After an error that does not tell whether the server attached, such as
    # ServerUnavailable, the hold is released if it did.
    def attach(proof)
      proof = Arguments.text(proof, "proof")
      granted do |lease|
        Native.call(:lock_attach, handle, proof, lease.__send__(:slot).place)
        listen(lease)
      end
    end

    # Whether the lock is held, by this client or another. One round trip. The answer may be outdated when it arrives: to act on
    # it, use `try_acquire`.
    def locked?
      Native.result(:lock_is_locked, :bool, handle)
    end

    def inspect
      "#<#{self.class.name} #{name.inspect} #{kind}>"
    end

    private

    attr_reader :client, :on_lost, :on_jeopardy

    def checked_owner(owner)
      return owner if owner.nil? || owner.is_a?(Owner)

      raise InvalidArgument, "owner: #{owner.inspect} is not an Onelock::Owner"
    end

    def scope(wait, **how)
      lease = Lease.__send__(:empty)
      begin
        begin
          take(lease, wait, **how)
          result = yield lease
        rescue Exception => e # rubocop:disable Lint/RescueException
          failed = e
          raise
        ensure
          lost = lease.__send__(:leave) unless lease.__send__(:handle).null?
          left = true
          report(lost, failed) if lost
        end
        result
      ensure
        # an exception from outside may have come before that, or before the acquire was ended
        lease.__send__(:slot).free unless left
        lease.__send__(:slot).end_acquisition
      end
    end

    # The lease that the block fills. An exception from outside, up to the end of this method, releases what was granted.
    def granted
      lease = Lease.__send__(:empty)
      begin
        yield lease
        done = lease
      ensure
        lease.__send__(:slot).free unless done
      end
    end

    def take(lease, wait, cancel: nil, **how)
      wait_ms = wait.equal?(DEFAULT) ? @wait_ms : Arguments.wait(wait)
      unless cancel.nil? || cancel.is_a?(Cancel)
        raise InvalidArgument, "cancel: #{cancel.inspect} is not an Onelock::Cancel"
      end
      raise LockCancelled, "acquire #{name.inspect}: it was cancelled before; nothing is held" if cancel&.cancelled?

      Acquisition.new(@client, how.empty? ? handle : handle(**how), wait_ms, cancel).take(lease.__send__(:slot))
      listen(lease) if listens?
    end

    def listens?
      @on_lost || @on_jeopardy
    end

    def listen(lease)
      lease.on_lost(&@on_lost) if @on_lost
      lease.on_jeopardy(&@on_jeopardy) if @on_jeopardy
    end

    # Tells a loss at the end of a scope: by itself, or as the cause of what the block raised.
    def report(lost, failed)
      raise lost if failed.nil? && Thread.current.status != "aborting"

      raise failed, cause: lost if failed && failed.cause.nil? && !failed.is_a?(LockLost)
    end

    # The lock of the library for the present owner.
    def handle(count: nil)
      owner = @owner
      owner ||= Owner.current if %i[reentrant_lock read_lock write_lock].include?(@kind)
      made = @made
      return made[2] if made && made[0].equal?(owner) && made[1] == count

      pointer = make(owner, count)
      @made = [owner, count, pointer].freeze
      pointer
    end

    def make(owner, count)
      options = Options.of_lock(@options) do |made|
        Native.call(:lock_options_set_owner, made, owner.__send__(:handle)) if owner
        Native.call(:lock_options_set_permits, made, Arguments.count(@permits, "permits")) if @permits
        Native.call(:lock_options_set_count, made, Arguments.count(count, "permits")) if count
      end
      number = Options::KINDS.fetch(@kind)
      Native.object(:lock_new, :lock_free, @client.__send__(:handle), number, @name, @name.bytesize, options)
    end
  end
end
