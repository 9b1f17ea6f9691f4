"""A bundle and a CTranslate2 model beside each other on the same text. Both run as processes of their own."""
