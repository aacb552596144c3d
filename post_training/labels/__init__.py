"""Labels of documents by a model behind a URL: grades or words, with the prompt and the model that gave them."""
