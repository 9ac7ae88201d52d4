from slimexp.app import main

if __name__ == "__main__":
    main()
