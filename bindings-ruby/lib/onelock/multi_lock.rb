# frozen_string_literal: true

module Onelock
  # Several locks as one: all are held, or none. From `Client#multi_lock`, or of locks of any kind and client:
  #
  #   both = Onelock::MultiLock.new(accounts.lock("account:1"), audit.reentrant_lock("log"), wait: 5)
  #   both.synchronize { |lease| transfer(fence: lease.fencing_token_of("account:1")) }
  #
  # The lease is held while all of them are, and the first loss is the loss of the whole. They are acquired one after the other, in
  # an order that is the same for all programs, and held while later ones are waited for: callers of overlapping sets never wait
  # in a circle. The `wait` of the locks does not count, only that of the whole. A lock that is named twice is held once.
  #
  # Otherwise as Lock. Raises InvalidArgument for no lock, for more than 32, for one name as two kinds of lock, and for one lock
  # with two owners.
  class MultiLock < Lock
    public_class_method :new

    # The locks.
    attr_reader :locks

    def initialize(*locks, wait: nil, on_lost: nil, on_jeopardy: nil) # rubocop:disable Lint/MissingSuper
      locks.each do |lock|
        next if lock.is_a?(Lock) && !lock.is_a?(MultiLock)

        raise InvalidArgument, "a MultiLock is made of locks of a Client, not of #{lock.class}"
      end
      @locks = locks.freeze
      # a try would count for each of several clients
      @client = nil
      @kind = :multi_lock
      @wait_ms = Arguments.wait(wait)
      @on_lost = on_lost
      @on_jeopardy = on_jeopardy
      handle
    end

    # The names, without prefixes.
    def names
      locks.map(&:name)
    end

    # The names in one text, for messages.
    def name
      names.join(", ")
    end

    # Raises Unsupported: several locks have no proof of their own.
    def attach(_proof)
      raise Unsupported, "attach #{name.inspect}: several locks have no proof of their own; attach to them one by one"
    end

    private

    def handle
      handles = locks.map { |lock| lock.__send__(:handle) }
      made = @made
      return made[1] if made && made[0].zip(handles).all? { |before, now| before.equal?(now) }

      array = FFI::MemoryPointer.new(:pointer, [handles.size, 1].max).write_array_of_pointer(handles)
      pointer = Native.object(:multi_new, :lock_free, array, handles.size)
      @made = [handles, pointer].freeze
      pointer
    end

    # The callbacks of the members are told as well, each once.
    def listen(lease)
      locks.uniq.each { |lock| lock.__send__(:listen, lease) }
      super
    end
  end
end
