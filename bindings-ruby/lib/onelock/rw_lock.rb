# frozen_string_literal: true

module Onelock
  # A read/write lock by name, from `Client#rw_lock`: many readers at a time, or one writer. It holds nothing by itself.
  #
  #   catalogue = client.rw_lock("catalogue")
  #   catalogue.read.synchronize { look }
  #   catalogue.write(wait: 5).synchronize { |lease| change(fence: lease.fencing_token) }
  #
  # A waiting writer keeps new readers out, and after a writer the readers that waited go first: neither side starves.
  class RwLock
    class << self
      private :new
    end

    # The name, without the prefix.
    attr_reader :name

    # Read/write locks are made by `Client#rw_lock`.
    def initialize(client, name, **options)
      @client = client
      @name = Arguments.name(name)
      @options = options
      # a wrong option is an error here
      read
    end

    # The reading side, a Lock: any number of leases at a time, while nobody writes. No I/O. `wait` takes the place of that of the
    # lock.
    def read(**wait)
      side(:read_lock, **wait)
    end

    # The writing side, a Lock: one lease, and nobody reads meanwhile. No I/O.
    #
    # An owner that writes may read and write again. One that reads gets WouldDeadlock: it would wait for itself.
    def write(**wait)
      side(:write_lock, **wait)
    end

    def inspect
      "#<#{self.class.name} #{name.inspect}>"
    end

    private

    def side(kind, **wait)
      unknown = wait.keys - [:wait]
      raise ArgumentError, "unknown keyword: #{unknown.first.inspect}" unless unknown.empty?

      Lock.__send__(:new, @client, kind, @name, **@options, **wait)
    end
  end
end
