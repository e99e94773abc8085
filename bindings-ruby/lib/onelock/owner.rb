# frozen_string_literal: true

module Onelock
  # An owner: acquires of a reentrant lock with equal owners share one hold. `Owner.new` is equal only to itself, and
  # `Owner.new("name")` to every owner of that name in one client.
  class Owner
    # The name, or nil.
    attr_reader :name

    def initialize(name = nil)
      @name = name && Arguments.name(name)
      @handle = if @name
                  Native.object(:owner_named, :owner_free, @name, @name.bytesize)
                else
                  Native.owned(Native.owner_new, :owner_free)
                end
    end

    class << self
      # The owner of acquires that name none: that of the `owner_scope` around, otherwise the fiber. Threads and fibers that
      # are started inside have owners of their own.
      def current
        Thread.current[:onelock_owner_scope] || (Thread.current[:onelock_owner] ||= new)
      end
    end

    private

    attr_reader :handle
  end

  # Acquires of reentrant locks inside the block, without an `owner`, have the same owner. It belongs to the fiber: pass
  # `owner` to a further `owner_scope` in a thread that is to have it, too. They can then hold the lock at the same time.
  #
  #   Onelock.owner_scope { |owner| ... }
  def self.owner_scope(owner = Owner.new)
    before = Thread.current[:onelock_owner_scope]
    Thread.current[:onelock_owner_scope] = owner
    begin
      yield owner
    ensure
      Thread.current[:onelock_owner_scope] = before
    end
  end
end
